// A library in which a thread waits.
#include <unistd.h>

void hold(void) {
  for (;;) pause();
}
