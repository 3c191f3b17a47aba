// The identity of an instance: (job, operator, index) and the incarnation its counters belong to.
package io.trilithon.probe;

record InstanceKey(String job, String operator, int index, int incarnation) {}
