#include "probe/ranks/rendezvous.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace ledger {
namespace {

constexpr double kHelloSeconds = 5;  // from connecting to having said who calls
constexpr double kVerdictSeconds = 5;
constexpr const char* kHello = "hello";
constexpr const char* kTable = "table";
constexpr const char* kRefused = "refused";
constexpr const char* kPeer = "peer";
constexpr std::size_t kHelloTexts = 4;  // then the plan

struct Caller {
  Socket socket;
  std::uint64_t rank = 0, world = 0;
  std::string port;  // where it listens for higher ranks
  Plan plan;
};

std::string seconds_text(double seconds) {
  return std::to_string(static_cast<std::uint64_t>(seconds)) + " s";
}

Meeting failed(const std::string& error, bool disagreement = false) {
  Meeting meeting;
  meeting.error = error;
  meeting.disagreement = disagreement;
  return meeting;
}

std::uint64_t number(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 10);
}

std::optional<Caller> hear(Socket socket, Deadline deadline) {
  const std::optional<Texts> texts = receive_texts(socket, std::min(deadline, in_seconds(kHelloSeconds)));
  if (!texts || texts->size() < kHelloTexts || (*texts)[0] != kHello) return std::nullopt;
  Caller caller{std::move(socket), number((*texts)[1]), number((*texts)[2]), (*texts)[3], {}};
  for (std::size_t i = kHelloTexts; i + 1 < texts->size(); i += 2)
    caller.plan.emplace_back((*texts)[i], (*texts)[i + 1]);
  return caller;
}

// What is wrong with this caller, from the sight of rank 0.
std::string objection(const Caller& caller, const RankPlace& place, const Plan& plan,
                      const std::vector<Caller>& callers) {
  const std::string who = "rank " + std::to_string(caller.rank);
  if (caller.world != place.world)
    return who + " was started as one of " + std::to_string(caller.world) + " ranks, rank 0 as one of " +
           std::to_string(place.world);
  if (caller.rank == 0 || caller.rank >= place.world) return "a second rank 0 came";
  const bool twice =
      std::any_of(callers.begin(), callers.end(), [&](const Caller& c) { return c.rank == caller.rank; });
  return twice ? who + " came twice" : difference(plan, caller.plan, caller.rank);
}

std::string missing(const std::vector<Caller>& callers, const RankPlace& place, double timeout_s) {
  std::string ranks;
  std::uint64_t absent = 0;
  for (std::uint64_t rank = 1; rank < place.world; ++rank) {
    if (std::any_of(callers.begin(), callers.end(), [&](const Caller& c) { return c.rank == rank; })) continue;
    if (++absent <= 8) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return std::to_string(place.world - absent) + " of " + std::to_string(place.world) + " ranks came within " +
         seconds_text(timeout_s) + ": missing " + ranks + (absent > 8 ? " and others" : "");
}

// Rank 0 hears everybody before it says what is wrong, so that all end with the same sentence.
Meeting host_meeting(const RankPlace& place, const Plan& plan, double timeout_s) {
  const Deadline deadline = in_seconds(timeout_s);
  const Listener listener = listen_at(place.port, place.one_machine, static_cast<int>(place.world));
  if (!listener.error.empty()) return failed("rank 0 " + listener.error + "; MASTER_PORT chooses another");
  std::vector<Caller> callers;
  std::string wrong;
  while (callers.size() + 1 < place.world) {
    Socket socket = accept_one(listener.socket, deadline);
    if (!socket && milliseconds_left(deadline) == 0) break;
    if (!socket) continue;
    std::optional<Caller> caller = hear(std::move(socket), deadline);
    if (!caller) continue;
    if (wrong.empty()) wrong = objection(*caller, place, plan, callers);
    callers.push_back(std::move(*caller));
  }
  const bool disagreement = !wrong.empty();
  if (wrong.empty() && callers.size() + 1 < place.world) wrong = missing(callers, place, timeout_s);
  Texts verdict = {kRefused, wrong, disagreement ? "disagreement" : "missing"};
  Meeting meeting;
  if (wrong.empty()) {
    std::sort(callers.begin(), callers.end(), [](const Caller& a, const Caller& b) { return a.rank < b.rank; });
    verdict = {kTable};
    for (const Caller& caller : callers) {
      verdict.push_back(caller.socket.peer_address());
      verdict.push_back(caller.port);
    }
    meeting.peers.resize(1);
  }
  for (Caller& caller : callers) {
    send_texts(caller.socket, verdict, in_seconds(kVerdictSeconds));
    if (wrong.empty()) meeting.peers.push_back(std::move(caller.socket));
  }
  meeting.error = wrong;
  meeting.disagreement = disagreement;
  return meeting;
}

// Lower ranks are called, higher ones call.
std::string connect_peers(const RankPlace& place, const Texts& table, const Listener& listener, Meeting& meeting,
                          Deadline deadline) {
  for (std::uint64_t rank = 1; rank < place.rank; ++rank) {
    const std::size_t row = static_cast<std::size_t>(1 + 2 * (rank - 1));
    Socket socket = connect_to(table[row], static_cast<std::uint16_t>(number(table[row + 1])), deadline);
    if (!socket || !send_texts(socket, {kPeer, std::to_string(place.rank)}, deadline))
      return "rank " + std::to_string(rank) + " cannot be reached from rank " + std::to_string(place.rank);
    meeting.peers[static_cast<std::size_t>(rank)] = std::move(socket);
  }
  for (std::uint64_t waiting = place.world - 1 - place.rank; waiting > 0;) {
    Socket socket = accept_one(listener.socket, deadline);
    if (!socket && milliseconds_left(deadline) == 0)
      return "a higher rank did not call rank " + std::to_string(place.rank);
    if (!socket) continue;
    const std::optional<Texts> texts = receive_texts(socket, std::min(deadline, in_seconds(kHelloSeconds)));
    if (!texts || texts->size() != 2 || (*texts)[0] != kPeer) continue;
    const std::uint64_t rank = number((*texts)[1]);
    if (rank <= place.rank || rank >= place.world || meeting.peers[static_cast<std::size_t>(rank)]) continue;
    meeting.peers[static_cast<std::size_t>(rank)] = std::move(socket);
    --waiting;
  }
  return "";
}

Meeting join_meeting(const RankPlace& place, const Plan& plan, double timeout_s) {
  const Deadline deadline = in_seconds(timeout_s);
  const std::string where = place.address + ":" + std::to_string(place.port);
  const Listener listener = listen_at(0, place.one_machine, static_cast<int>(place.world));
  if (!listener.error.empty()) return failed(listener.error);
  Meeting meeting;
  meeting.peers.resize(static_cast<std::size_t>(place.world));
  Socket& first = meeting.peers[0];
  first = connect_to(place.address, place.port, deadline);
  if (!first) return failed("rank 0 was not at " + where + " within " + seconds_text(timeout_s));
  Texts hello = {kHello, std::to_string(place.rank), std::to_string(place.world), std::to_string(listener.port)};
  for (const auto& [name, value] : plan) {
    hello.push_back(name);
    hello.push_back(value);
  }
  std::optional<Texts> verdict;
  const Deadline answer = deadline + std::chrono::seconds(static_cast<int>(kHelloSeconds + kVerdictSeconds));
  if (send_texts(first, hello, deadline)) verdict = receive_texts(first, answer);
  if (!verdict || verdict->empty())
    return failed("rank 0 at " + where + " ended before all ranks had come, or is another program");
  if (verdict->size() == 3 && (*verdict)[0] == kRefused) return failed((*verdict)[1], (*verdict)[2] == "disagreement");
  if ((*verdict)[0] != kTable || verdict->size() != 1 + 2 * (place.world - 1))
    return failed("rank 0 at " + where + " is another program");
  meeting.error = connect_peers(place, *verdict, listener, meeting, in_seconds(timeout_s));
  return meeting;
}

}  // namespace

std::string difference(const Plan& plan, const Plan& other, std::uint64_t rank) {
  const std::string who = "rank " + std::to_string(rank) + " means another run than rank 0: ";
  for (std::size_t i = 0; i < std::min(plan.size(), other.size()); ++i) {
    if (plan[i].first != other[i].first) return who + "it is another version of probe";
    if (plan[i].second != other[i].second)
      return who + plan[i].first + " is " + other[i].second + ", not " + plan[i].second;
  }
  return plan.size() == other.size() ? "" : who + "it is another version of probe";
}

Meeting meet(const RankPlace& place, const Plan& plan, double timeout_s) {
  if (place.world == 1) return {};
  return place.rank == 0 ? host_meeting(place, plan, timeout_s) : join_meeting(place, plan, timeout_s);
}

}  // namespace ledger
