// A library with one function, `launch_by`, which another one (NAME) launches for, by a function of the program. It adds up a PADDING,
// so that two libraries have different tables.
int NAME(int (*launch)(unsigned, unsigned)) __attribute__((noinline, noipa));
int NAME(int (*launch)(unsigned, unsigned)) {
  int error = launch(NUMBER, 1);
  return error + 1;
}

#ifdef PADDING
int padding(int (*of)(unsigned, unsigned)) __attribute__((noinline, noipa));
int padding(int (*of)(unsigned, unsigned)) { return of(0, 0) + 1; }
#endif

int launch_by(int (*launch)(unsigned, unsigned));
int launch_by(int (*launch)(unsigned, unsigned)) {
  int result = NAME(launch);
  __asm__ volatile("" : "+r"(result));
  return result;
}
