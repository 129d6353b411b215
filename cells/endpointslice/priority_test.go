// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// CES-34: what waits in the fast queue is next, in whatever order they came; one that gives up has no turn. CES-11: in both, namespaces have
// their turns, and in each what came first is first.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		turns := newTurns(rate.NewLimiter(1, 1))
		var mu sync.Mutex
		var order []string
		wait := func(ctx context.Context, isFast bool, names ...string) {
			for _, name := range names {
				namespace, _, _ := strings.Cut(name, "/")
				go func() {
					if turns.wait(ctx, isFast, namespace) == nil {
						mu.Lock()
						defer mu.Unlock()
						order = append(order, name)
					}
				}()
				synctest.Wait()
			}
		}
		go func() { _ = turns.run(ctx) }()
		wait(ctx, false, "bb/first") // has the burst
		gone, giveUp := context.WithCancel(ctx)
		wait(ctx, false, "bb/1", "bb/2", "bb/3")
		wait(gone, false, "cc/gone")
		wait(ctx, false, "aa/1")
		wait(gone, true, "bb/gone")
		giveUp()
		synctest.Wait()
		wait(ctx, true, "bb/x", "bb/y", "aa/x")
		time.Sleep(7500 * time.Millisecond)
		synctest.Wait()
		if got := strings.Join(order, " "); got != "bb/first bb/x aa/x bb/y bb/1 aa/1 bb/2 bb/3" {
			t.Errorf("the order is %s", got)
		}
		for isFast, lane := range turns.waiting {
			if len(lane.turns)+len(lane.order) > 0 {
				t.Errorf("fast %t: %d namespaces and %d turns are left", isFast, len(lane.turns), len(lane.order))
			}
		}
		cancel()
	})
}

// Number 23 of the contract's endpoint-slices.md; CES-34: with any other value slices wait in the standard queue.
func TestOtherValueIsNoPriority(t *testing.T) {
	w := newWorld(t)
	const second = "second"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: second, Annotations: map[string]string{priorityAnnotation: "other"}}}
	if _, err := w.core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.core.CoreV1().Namespaces().Delete(context.Background(), second, metav1.DeleteOptions{}) })
	w.endpoint("shop", "web", status(8))
	o := w.start("fcfs")
	w.sizes(1) // what is there when a term begins has not waited
	w.endpoint(second, "web", status(8))
	operatortest.Eventually(t, "the write is counted in the standard queue", func() bool { return o.Metric("ces_queueing_delay_seconds", standard) >= 1 })
	if n := o.Metric("ces_queueing_delay_seconds", fast); n != 0 {
		t.Errorf("%v writes of the fast queue", n)
	}
}

// Number 22 of the contract's endpoint-slices.md; CES-34, CES-E19: with 50 slices due at one a second, that of a Namespace with priority is next.
func TestPriorityNamespaces(t *testing.T) {
	w := newWorld(t)
	const first = "first"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: first, Annotations: map[string]string{priorityAnnotation: priority}}}
	if _, err := w.core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.core.CoreV1().Namespaces().Delete(context.Background(), first, metav1.DeleteOptions{}) })
	o := w.start("fcfs", `--ces-rate-limits=[{"nodes":0,"limit":1,"burst":1}]`, "--ces-max-ciliumendpoints-per-ces=1")
	w.many("shop", 50, 7)
	operatortest.Eventually(t, "the first is written", func() bool { return len(w.list()) > 0 })
	w.endpoint(first, "web", status(8))
	operatortest.Eventually(t, "that of the Namespace with priority is written", func() bool {
		for _, s := range w.list() {
			if s.Object["namespace"] == first {
				return true
			}
		}
		return false
	})
	if n := len(w.list()); n > 40 { // in the order in which they were due it would be the last of 51
		t.Errorf("%d slices are written before it", n)
	}
	if n := o.Metric("ces_queueing_delay_seconds", fast); n != 1 {
		t.Errorf("%v writes of the fast queue", n)
	}
}
