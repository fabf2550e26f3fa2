#include "io/documents/plan_parts.h"

namespace dapple::io {

void write_gradients(JsonWriter& writer, const GradientSynchronization& gradients) {
  writer.open_object(JsonWriter::Layout::Line);
  writer.key("bucket_bytes").integer(gradients.bucket_size.count);
  writer.key("optimizer_step").text(to_string(gradients.optimizer));
  writer.close();
}

void write_time_parts(JsonWriter& writer, const TimeParts& parts) {
  writer.open_object(JsonWriter::Layout::Line);
  for (const TimePart& part : kTimeParts) writer.key(part.key).integer((parts.*part.part).ns);
  writer.close();
}

}  // namespace dapple::io
