// Compare-and-swap load on an etcd cluster, as bench/cluster.py puts on Shoal: each client takes keys by chance, reads
// none, and writes a key if its version is the one that it knows. Prints operations per second.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	endpoints := flag.String("endpoints", "", "HOST:PORT,HOST:PORT,…")
	clients := flag.Int("clients", 1, "how many at a time")
	seconds := flag.Float64("seconds", 5, "how long")
	keys := flag.Int("keys", 1000, "keys of each client")
	flag.Parse()

	var done, failed atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*seconds*float64(time.Second)))
	defer cancel()
	var wait sync.WaitGroup
	started := time.Now()
	for n := 0; n < *clients; n++ {
		client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(*endpoints, ","), DialTimeout: 5 * time.Second})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer client.Close()
		wait.Add(1)
		go func(n int, client *clientv3.Client) {
			defer wait.Done()
			versions := make([]int64, *keys)
			for ctx.Err() == nil {
				at := rand.Intn(*keys)
				key := fmt.Sprintf("bench/%d/%d/%d", started.UnixNano(), n, at)
				answer, err := client.Txn(ctx).
					If(clientv3.Compare(clientv3.Version(key), "=", versions[at])).
					Then(clientv3.OpPut(key, fmt.Sprint(versions[at]+1))).
					Commit()
				if ctx.Err() != nil {
					return
				}
				if err != nil || !answer.Succeeded {
					failed.Add(1)
					continue
				}
				versions[at]++
				done.Add(1)
			}
		}(n, client)
	}
	wait.Wait()
	fmt.Printf("%.1f %d\n", float64(done.Load())/time.Since(started).Seconds(), failed.Load())
}
