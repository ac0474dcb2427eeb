// Four goroutines with work that is checked, in Go. "ping N" is answered by "pong N ROUNDS"; the end of the input ends it.
package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

func round() [32]byte {
	sum := sha256.Sum256([]byte("midair"))
	garbage := make([][]byte, 0)
	for n := 0; n < 200; n++ {
		garbage = append(garbage, append([]byte{byte(n)}, sum[:]...))
		sum = sha256.Sum256(garbage[n])
	}
	return sum
}

func main() {
	right := round()
	var rounds, wrong, stop int64
	var all sync.WaitGroup
	for n := 0; n < 4; n++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for atomic.LoadInt64(&stop) == 0 {
				if round() != right {
					atomic.AddInt64(&wrong, 1)
				}
				atomic.AddInt64(&rounds, 1)
			}
		}()
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 2 && words[0] == "ping" {
			fmt.Println("pong", words[1], atomic.LoadInt64(&rounds))
		}
	}
	atomic.StoreInt64(&stop, 1)
	all.Wait()
	if wrong != 0 || rounds == 0 {
		os.Exit(8)
	}
}
