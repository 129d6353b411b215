// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// The benchmarks, for a module that runs them beside those of others too. The
// server is a process of its own, so that what is measured is the client.

// BudgetPod is a pod with the fields that the budget names.
type BudgetPod struct {
	BudgetPodMeta `json:"metadata"`
	Spec          BudgetPodSpec   `json:"spec"`
	Status        BudgetPodStatus `json:"status"`
}

// BudgetPodMeta is the metadata of a BudgetPod.
type BudgetPodMeta struct {
	slim.Meta
	Labels     slim.Labels `json:"labels"`
	Controller slim.Owner  `json:"ownerReferences"`
}

// BudgetPodSpec is the spec of a BudgetPod.
type BudgetPodSpec struct {
	NodeName slim.String `json:"nodeName"`
}

// BudgetPodStatus is the status of a BudgetPod.
type BudgetPodStatus struct {
	Phase  slim.String  `json:"phase"`
	PodIPs []slim.PodIP `json:"podIPs"`
}

// BudgetPods declares them.
func BudgetPods() stream.Kind[BudgetPod] {
	return stream.Core[BudgetPod, corev1.Pod](corev1.SchemeGroupVersion.WithResource("pods"))
}

// BudgetEndpoint is a custom resource with what a duty would keep of it.
type BudgetEndpoint struct {
	BudgetPodMeta `json:"metadata"`
	Status        struct {
		Identity struct {
			ID int64 `json:"id"`
		} `json:"identity"`
		Networking struct {
			Addressing []struct {
				IPv4 slim.Addr `json:"ipv4"`
				IPv6 slim.Addr `json:"ipv6"`
			} `json:"addressing"`
			Node slim.String `json:"node"`
		} `json:"networking"`
	} `json:"status"`
}

// BudgetEndpoints declares them.
func BudgetEndpoints() stream.Kind[BudgetEndpoint] {
	return stream.Custom[BudgetEndpoint](schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "endpoints"})
}

// Usage is what a process has used.
type Usage struct {
	Wall    time.Duration
	CPU     time.Duration // user and system
	Peak    int64         // bytes resident at most
	Live    int64         // bytes of heap after a collection
	Objects int
}

// childRole says in the environment of a child process what it is there for.
const childRole = "SKEP_STREAMTEST_CHILD"

// Child reports whether this process is a child that MeasureSync or StartServer
// has started, and does its work if so. A TestMain that uses them asks first.
func Child() bool {
	role, arg, _ := strings.Cut(os.Getenv(childRole), " ")
	var err error
	switch role {
	case "":
		return false
	case "serve":
		err = serve(arg)
	case "sync":
		err = measure(arg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

func startChild(role string) (*exec.Cmd, *bufio.Reader, io.Closer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childRole+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	return cmd, bufio.NewReader(out), in, cmd.Start()
}

// StartServer serves a Template of so many "pods" or "endpoints" from a process
// of its own until the test ends, and returns its URL.
func StartServer(tb testing.TB, kind string, size int) string {
	tb.Helper()
	cmd, out, in, err := startChild(fmt.Sprintf("serve %s %d", kind, size))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	address, err := out.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return "http://" + strings.TrimSpace(address)
}

func serve(arg string) error {
	kind, size, _ := strings.Cut(arg, " ")
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	handler := NewPods(n)
	if kind == "endpoints" {
		handler = NewEndpoints(n)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is done
		_ = listener.Close()
	}()
	_ = http.Serve(listener, handler)
	return nil
}

// SyncOf is what MeasureSync measures.
type SyncOf string

const (
	SyncBudgetPods SyncOf = "budget-pods" // protobuf, with an index by node
	SyncPods       SyncOf = "pods"        // slim.Pod
	SyncEndpoints  SyncOf = "endpoints"   // JSON
)

// MeasureSync syncs a stream from the server in a process of its own, with
// initial events or with a list, and returns what that has used.
func MeasureSync(tb testing.TB, url string, of SyncOf, watchList bool) (u Usage) {
	tb.Helper()
	if !watchList {
		tb.Setenv("KUBE_FEATURE_WatchListClient", "false")
	}
	cmd, out, in, err := startChild(fmt.Sprintf("sync %s %s", of, url))
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	if err := json.NewDecoder(out).Decode(&u); err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		tb.Fatal(err)
	}
	return u
}

func measure(arg string) error {
	of, url, _ := strings.Cut(arg, " ")
	var u Usage
	var err error
	begin := time.Now()
	switch SyncOf(of) {
	case SyncBudgetPods:
		u, err = measureKind(url, BudgetPods(), func(p *BudgetPod, add func(slim.String)) { add(p.Spec.NodeName) }, begin)
	case SyncPods:
		u, err = measureKind(url, stream.Pods, func(p *slim.Pod, add func(slim.String)) { add(p.Spec.NodeName) }, begin)
	case SyncEndpoints:
		u, err = measureKind(url, BudgetEndpoints(), func(p *BudgetEndpoint, add func(slim.String)) { add(p.Status.Networking.Node) }, begin)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(u)
}

func measureKind[T any](url string, kind stream.Kind[T], byNode func(*T, func(slim.String)), begin time.Time) (u Usage, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := stream.New(stream.NewSource(connectURL(url)), kind)
	if err != nil {
		return u, err
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, err := s.Store(ctx)
	if err != nil {
		return u, err
	}
	stream.IndexKeys(store, stream.NewIndex("node", byNode))
	u.Wall, u.Objects = time.Since(begin), store.Len()
	if u.CPU, err = cpu(); err != nil {
		return u, err
	}
	if u.Peak, err = peak(); err != nil {
		return u, err
	}
	time.Sleep(100 * time.Millisecond) // for the last of the list to be let go
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	u.Live = int64(after.HeapAlloc) - int64(before.HeapAlloc)
	runtime.KeepAlive(store)
	return u, nil
}

func connectURL(url string) stream.Connect {
	return ConnectWith(&rest.Config{Host: url}, &http.Client{Transport: &http.Transport{}})
}

func cpu() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, err
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}

// peak is the most that was resident at once.
func peak() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not tell the peak")
}

// WatchUpdates receives n updates of BudgetPods from the server, which has that
// kind, through a stream with an index and one subscriber, and reports CPU and allocations per update. The server is to have few
// pods, so that updates do not coalesce away.
func WatchUpdates(b *testing.B, url string) {
	s, err := stream.New(stream.NewSource(connectURL(url)), BudgetPods())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	store, err := s.Store(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	stream.IndexKeys(store, stream.NewIndex("node", func(p *BudgetPod, add func(slim.String)) { add(p.Spec.NodeName) }))
	target := store.Revision()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	delivered := 0
	next, stop := iter.Pull(s.Changes(ctx))
	defer stop()
	for batch, ok := next(); ok && !batch.Synced; batch, ok = next() {
	}
	target += slim.Revision(b.N)
	b.ReportAllocs()
	cpuBefore, _ := cpu()
	b.ResetTimer()
	resp, err := http.Post(fmt.Sprintf("%s/updates?n=%d", url, b.N), "", nil)
	if err != nil {
		b.Fatal(err)
	}
	_ = resp.Body.Close()
	for last := slim.Revision(0); last < target-1; {
		batch, ok := next()
		if !ok {
			b.Fatal("the loop has ended")
		}
		delivered += len(batch.Changes)
		last = batch.Changes[len(batch.Changes)-1].Object.ResourceVersion
	}
	b.StopTimer()
	cpuAfter, _ := cpu()
	b.ReportMetric(float64(cpuAfter-cpuBefore)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(delivered)/float64(b.N), "events/op")
}

// FanOut makes b.N updates of 10,000 keys in turn, and delivers each to so many
// subscribers. After
// every key's turn it waits for the last subscriber, so that nothing coalesces.
func FanOut(b *testing.B, subscribers int) {
	l, err := stream.NewLocal[slim.Pod]()
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	names := make([]string, fanOutKeys)
	for i := range names {
		names[i] = fmt.Sprintf("pod-%07d", i)
	}
	namespace := slim.MakeString("default")
	pods := make([]*slim.Pod, fanOutKeys+b.N)
	for i := range pods {
		pods[i] = &slim.Pod{}
		pods[i].Name, pods[i].Namespace = names[i%fanOutKeys], namespace
	}
	l.Replace(pods[:fanOutKeys]...)
	f := &fanOut{Resource: l, last: slim.Revision(len(pods)), ready: make(chan struct{}), turn: make(chan struct{})}
	var done sync.WaitGroup
	for range subscribers {
		done.Go(func() { f.receive(b.Context()) })
	}
	wait := func(c chan struct{}) {
		for range subscribers {
			<-c
		}
	}
	wait(f.ready)
	b.ReportAllocs()
	b.ResetTimer()
	for i, pod := range pods[fanOutKeys:] {
		l.Upsert(pod)
		if (i+1)%fanOutKeys == 0 && i+1 < b.N {
			wait(f.turn)
		}
	}
	done.Wait()
	b.StopTimer()
	if n := f.deliveries.Load(); n != int64(b.N*subscribers) {
		b.Fatalf("%d deliveries of %d updates to %d subscribers", n, b.N, subscribers)
	}
	b.ReportMetric(float64(b.N*subscribers)/b.Elapsed().Seconds(), "deliveries/s")
}

const fanOutKeys = 10_000

type fanOut struct {
	stream.Resource[slim.Pod]
	last        slim.Revision // of all
	ready, turn chan struct{} // a subscriber has the initial state, or a turn of all keys
	deliveries  atomic.Int64
}

// receive takes changes until it has seen the last revision.
func (f *fanOut) receive(ctx context.Context) {
	n, more := int64(0), true
	for batch := range f.Changes(ctx) {
		for _, change := range batch.Changes {
			more = f.take(change, &n) && more
		}
		if batch.Synced {
			f.ready <- struct{}{}
		}
		if !more {
			break
		}
	}
	f.deliveries.Add(n)
}

func (f *fanOut) take(change stream.Change[slim.Pod], n *int64) (more bool) {
	revision := change.Object.ResourceVersion
	if revision <= fanOutKeys {
		return true
	}
	*n++
	if revision == f.last {
		return false
	}
	if revision%fanOutKeys == 0 {
		f.turn <- struct{}{}
	}
	return true
}
