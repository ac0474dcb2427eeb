// As intercept.cpp, by a client that has the same calls traced.
#define TRACED
#include "intercept.cpp"
