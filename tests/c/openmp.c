/* A program that uses OpenMP's host side, and says how often it did what. With an argument it pauses before it ends, so that
   it can be attached to. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4, REGIONS = 5, TASKS = 12, LOCKED = 3, BARRIERS = 2 };

int main(int argc, char **argv)
{
  (void)argv;
  int implicit = 0, tasks = 0, critical = 0, locked = 0;
  omp_lock_t lock;
  omp_set_dynamic(0);
  omp_init_lock(&lock);
  for (int region = 0; region < REGIONS; ++region) {
#pragma omp parallel num_threads(THREADS)
    {
#pragma omp atomic
      ++implicit;
      for (int barrier = 0; barrier < BARRIERS; ++barrier) {
#pragma omp barrier
      }
#pragma omp critical
      ++critical;
      for (int time = 0; time < LOCKED; ++time) {
        omp_set_lock(&lock);
        ++locked;
        omp_unset_lock(&lock);
      }
      if (omp_get_thread_num() == 0) {
        for (int task = 0; task < TASKS; ++task) {
#pragma omp task shared(tasks)
          {
#pragma omp atomic
            ++tasks;
          }
        }
#pragma omp taskwait
      }
    }
  }
  omp_destroy_lock(&lock);
  printf("parallel %d\nimplicit %d\ntasks %d\ncritical %d\nlocked %d\nbarriers %d\nlocks 1\nthreads %d\n", REGIONS, implicit, tasks,
         critical, locked, REGIONS * THREADS * BARRIERS, THREADS);
  fflush(stdout);
  if (argc > 1)
    getchar();
  return 0;
}
