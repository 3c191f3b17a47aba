// Lists as Scala's interfaces take them.
package io.trilithon.probe;

import java.util.List;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

final class ScalaLists {
  private ScalaLists() {}

  static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
