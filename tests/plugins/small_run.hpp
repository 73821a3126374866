// A small flow with its data, to run the program with a plugin.
#pragma once

#include "tests/journeys/shell.hpp"

// Two inputs, two outputs, forty samples.
struct SmallRun {
  journeys::Folder folder;
  std::string flags;
  SmallRun() {
    std::string rows = "a,b\n";
    for (int i = 0; i < 40; ++i) rows += std::to_string(i % 7 * 0.25 - 0.5) + "," + std::to_string(i % 5 * 0.25) + "\n";
    flags = " --producer x=" + folder.write("x.csv", rows) + " --producer y=" + folder.write("y.csv", rows) +
            " --threads 1 ";
  }
  std::string flow(const std::string& functions) const {
    return folder.write(
        "g.hmx",
        "harmonic g {\n  producer x {2}; producer y {2};\n  layer o {2};\n  cycle (steps 20, batch=8) {\n    x -(" +
            functions + ")-> o;\n    o <-(mse)- y;\n  }\n}\n");
  }
};
