// numeric.h - what the numbers and counters of a paste allow to conclude, as evidence.
#pragma once

#include <vector>

#include "core/oom/diagnosis.h"

namespace ledger::oom {

// The message with the most numbers among those about a device, or nullptr.
const Message* main_message(const std::vector<Message>& messages);

// numeric.cc: one message.
void weigh_message(Diagnosis& diagnosis, const Squashed& text, const Message& message);
// counters.cc: progress bars, "step 164", memory logged step by step, trainable share, loss summed with its graph.
void weigh_counters(Diagnosis& diagnosis, const Squashed& text);
// A shard counter that stopped before its end: the place and what it says.
bool stopped_while_loading(const Squashed& text, std::size_t* at);

void add_evidence(Diagnosis& diagnosis, const char* id, std::string quote, Bytes bytes,
                  std::initializer_list<std::pair<Cause, int>> weights);

}  // namespace ledger::oom
