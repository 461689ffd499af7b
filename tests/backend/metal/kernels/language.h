// A header of a kernel.
#pragma once

struct Parameters {
  unsigned int count;
  float scale;
};
