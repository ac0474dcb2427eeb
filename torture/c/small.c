/* What a target loads and unloads all the time. */
int small_answer(int x) { return x * 2 + 1; }
