// Makes the program beside it one that is linked with the C library, whose threads it then makes its own by.
package main

// #include <pthread.h>
import "C"

var _ = C.pthread_self()
