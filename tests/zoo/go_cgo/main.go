// 100 goroutines call C, on stacks that Go moves between threads: 100 * 10 * 10 blocks.
package main

// long zoo_blocks(long count);
// #cgo LDFLAGS: -lblocks
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"sync"
)

func main() {
	var group sync.WaitGroup
	var lock sync.Mutex
	var sum int64
	gate := make(chan bool)
	for i := 0; i < 100; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			<-gate
			for turn := 0; turn < 10; turn++ {
				more := int64(C.zoo_blocks(10))
				lock.Lock()
				sum += more
				lock.Unlock()
			}
		}()
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	close(gate)
	group.Wait()
	fmt.Println(sum)
}
