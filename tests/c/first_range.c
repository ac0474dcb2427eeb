// Begins a range as the first thing that it does, and links nothing but ROCTx.
#include <stdint.h>
#include <stdio.h>

void roctxMarkA(const char *);
int roctxRangePushA(const char *);
int roctxRangePop(void);
uint64_t roctxRangeStartA(const char *);
void roctxRangeStop(uint64_t);

int main(void) {
  roctxRangePushA("the first range");
  roctxMarkA("a mark");
  uint64_t id = roctxRangeStartA("another range");
  roctxRangePop();
  roctxRangeStop(id);
  puts("the program is done");
  return 0;
}
