// Tests of dead letters: what they say of the error, and that they are cut.
package io.trilithon.probe;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.RaiseError;
import org.apache.spark.unsafe.types.UTF8String;

class FailuresTest {
  private static JsonNode letter(String value, int maxChars) {
    return Json.parse(Failures.letter(UTF8String.fromString("select failed"),
        UTF8String.fromString("op"), UTF8String.fromString("in-0-7"),
        UTF8String.fromString(value), maxChars).toString());
  }

  private static Expression throwing(String message) {
    return new RaiseError(Literal.create(message, org.apache.spark.sql.types.DataTypes.StringType));
  }

  void aLetterNamesTheFieldAndTheError() {
    Expression tried = new CatchingEval(new CatchingEval(throwing("no such thing"), "price"), "");
    Check.equal(null, tried.eval(InternalRow.empty()));
    JsonNode letter = letter("{}", 100);
    Check.equal("price", letter.path("field").asText());
    Check.that(letter.path("error").asText().contains("no such thing"), letter.toString());
    Check.equal("op", letter.path("at").asText());
    Check.equal("in-0-7", letter.path("source").asText());
    Check.that(!letter.has("bytes"), "a value that is whole needs no size");
  }

  void anErrorIsToldOnce() {
    new CatchingEval(throwing("x"), "").eval(InternalRow.empty());
    letter("{}", 100);
    Check.that(!letter("{}", 100).has("error"), "the next letter is another record's");
  }

  void theNextRecordStartsWithoutAnError() {
    new CatchingEval(throwing("x"), "").eval(InternalRow.empty());
    Failures.reset();
    Check.that(!letter("{}", 100).has("error"), "it was another record's");
  }

  void aLongValueIsCutAndItsSizeTold() {
    JsonNode letter = letter("äbc".repeat(100), 4);
    Check.equal("äbcä", letter.path("value").asText());
    Check.equal(400, letter.path("bytes").asInt());
  }
}
