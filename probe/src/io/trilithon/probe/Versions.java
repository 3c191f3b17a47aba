// Remembers at which version each name last changed.
package io.trilithon.probe;

import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * Bounded: the oldest changes are forgotten. Who knows an older version than {@link #oldest} must be
 * told everything.
 */
final class Versions {
  private final int kept;
  private final TreeMap<Long, Set<String>> byVersion = new TreeMap<>();
  private final Map<String, Long> byName = new HashMap<>();
  private long oldest;

  Versions(int kept) {
    this.kept = kept;
  }

  void put(String name, long version) {
    Long before = byName.put(name, version);
    if (before != null) {
      byVersion.computeIfPresent(before, (v, names) -> {
        names.remove(name);
        return names.isEmpty() ? null : names;
      });
    }
    byVersion.computeIfAbsent(version, v -> new LinkedHashSet<>()).add(name);
    while (byName.size() > kept && byVersion.size() > 1) {
      Map.Entry<Long, Set<String>> first = byVersion.pollFirstEntry();
      byName.keySet().removeAll(first.getValue());
      oldest = first.getKey();
    }
  }

  /** The names that changed after a version, each once. */
  List<String> since(long version) {
    return byVersion.tailMap(version, false).values().stream().flatMap(Collection::stream).toList();
  }

  /** What changed up to this version may be forgotten. */
  long oldest() {
    return oldest;
  }
}
