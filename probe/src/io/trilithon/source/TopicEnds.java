// Asks Kafka where topics end: one call for all of them, however many there are.
package io.trilithon.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

/**
 * From Python each topic and partition would take several calls to the JVM. Kafka's client is the
 * connector's and not there when the probe is compiled: it is called by name.
 */
public final class TopicEnds {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  /** Of a topic that a principal may not see, Kafka does not say whether it exists. */
  private static final Set<String> ABSENT =
      Set.of("UnknownTopicOrPartitionException", "TopicAuthorizationException");
  private static final String COMMON = "org.apache.kafka.common.";
  private static final String ADMIN = "org.apache.kafka.clients.admin.";

  private final Object admin;
  private final ClassLoader loader;

  private TopicEnds(Object admin) {
    this.admin = admin;
    loader = admin.getClass().getClassLoader();
  }

  /**
   * {"topic": [partitions, sum of their ends]} for JSON lists of topics, without those that are
   * absent. The end of a topic of the second list is where its first open transaction begins.
   */
  public static String ask(Object admin, String topics, String committed)
      throws ReflectiveOperationException, ExecutionException, InterruptedException,
      JsonProcessingException {
    Set<String> onlyCommitted = new HashSet<>(names(committed));
    TopicEnds asked = new TopicEnds(admin);
    Map<String, Integer> all = asked.partitions(names(topics));
    Map<String, Integer> inTransactions = new TreeMap<>(all);
    inTransactions.keySet().retainAll(onlyCommitted);
    Map<String, Integer> others = new TreeMap<>(all);
    others.keySet().removeAll(onlyCommitted);
    // Both are under way before one is waited for.
    Future<?> first = asked.list(others, "READ_UNCOMMITTED");
    Future<?> second = asked.list(inTransactions, "READ_COMMITTED");
    Map<String, Long> ends = new HashMap<>();
    asked.sum(first, ends);
    asked.sum(second, ends);
    ObjectNode json = MAPPER.createObjectNode();
    all.forEach((name, count) ->
        json.putArray(name).add(count).add(ends.getOrDefault(name, 0L)));
    return MAPPER.writeValueAsString(json);
  }

  private static List<String> names(String json) throws JsonProcessingException {
    List<String> names = new ArrayList<>();
    for (JsonNode name : MAPPER.readTree(json)) {
      names.add(name.asText());
    }
    return names;
  }

  private Map<String, Integer> partitions(List<String> names)
      throws ReflectiveOperationException, ExecutionException, InterruptedException {
    Object described =
        admin.getClass().getMethod("describeTopics", Collection.class).invoke(admin, names);
    Map<String, Integer> counts = new TreeMap<>();
    for (Map.Entry<?, ?> topic : ((Map<?, ?>) call(described, "topicNameValues")).entrySet()) {
      try {
        Object description = ((Future<?>) topic.getValue()).get();
        Collection<?> partitions = (Collection<?>) call(description, "partitions");
        counts.put((String) topic.getKey(), partitions.size());
      } catch (ExecutionException e) {
        if (!ABSENT.contains(e.getCause().getClass().getSimpleName())) {
          throw e;
        }
      }
    }
    return counts;
  }

  /** The ends of all partitions of topics, which Kafka is asked for together. */
  private Future<?> list(Map<String, Integer> topics, String isolation)
      throws ReflectiveOperationException {
    if (topics.isEmpty()) {
      return null;
    }
    Object latest = type(ADMIN + "OffsetSpec").getMethod("latest").invoke(null);
    Map<Object, Object> partitions = new HashMap<>();
    for (Map.Entry<String, Integer> topic : topics.entrySet()) {
      for (int i = 0; i < topic.getValue(); i++) {
        partitions.put(type(COMMON + "TopicPartition").getConstructor(String.class, int.class)
            .newInstance(topic.getKey(), i), latest);
      }
    }
    Class<?> level = type(COMMON + "IsolationLevel");
    Class<?> options = type(ADMIN + "ListOffsetsOptions");
    Object listed = admin.getClass().getMethod("listOffsets", Map.class, options).invoke(admin,
        partitions, options.getConstructor(level)
            .newInstance(level.getMethod("valueOf", String.class).invoke(null, isolation)));
    return (Future<?>) call(listed, "all");
  }

  private void sum(Future<?> listed, Map<String, Long> ends)
      throws ReflectiveOperationException, ExecutionException, InterruptedException {
    if (listed == null) {
      return;
    }
    for (Map.Entry<?, ?> end : ((Map<?, ?>) listed.get()).entrySet()) {
      ends.merge((String) call(end.getKey(), "topic"), (Long) call(end.getValue(), "offset"),
          Long::sum);
    }
  }

  private Class<?> type(String name) throws ClassNotFoundException {
    return Class.forName(name, true, loader);
  }

  private static Object call(Object target, String method) throws ReflectiveOperationException {
    return target.getClass().getMethod(method).invoke(target);
  }
}
