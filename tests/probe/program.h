// program.h - the program as people and scripts meet it: run by a shell in a folder of its own, and what it left there.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace ledger {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class InAFolder : public testing::Test {
 protected:
  explicit InAFolder(const std::string& name)
      : folder(std::filesystem::path(testing::TempDir()) / (name + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder);
  }
  ~InAFolder() override { std::filesystem::remove_all(folder); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name, std::ios::binary) << text;
  }

  // Runs a command in the folder; what it says goes to `name`.out and `name`.err.
  Outcome shell(const std::string& command, const std::string& name = "") const {
    const std::string file = (folder / name).string();
    const std::string all =
        "cd '" + folder.string() + "' && " + command + " >'" + file + ".out' 2>'" + file + ".err' </dev/null";
    const int status = std::system(all.c_str());  // NOLINT(cert-env33-c): the point of these tests
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(file + ".out"), contents(file + ".err")};
  }

  std::filesystem::path folder;
};

}  // namespace ledger
