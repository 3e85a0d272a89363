// Eight goroutines call C's malloc, calloc, realloc, free and strdup. It prints "ready" before and "done" after that, and waits for a line each time.
package main

// #include <stdlib.h>
// #include <string.h>
// static char *twice(const char *text) { return strdup(text); }
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

func work() {
	for i := 0; i < 2000; i++ {
		text := C.CString("a text that Go copies for C")
		copy := C.twice(text)
		block := C.realloc(C.calloc(3, C.size_t(100+i)), C.size_t(5000))
		C.free(unsafe.Pointer(text))
		C.free(unsafe.Pointer(copy))
		if i%100 != 0 {
			C.free(block)
		}
	}
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	lines.ReadString('\n')
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			work()
		}()
	}
	group.Wait()
	fmt.Println("done")
	lines.ReadString('\n')
}
