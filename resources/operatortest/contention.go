// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// Reverter is a second writer that reverts the writes of an operator as fast as its watch
// shows them.
type Reverter struct {
	reverted atomic.Int64
	stop     func()
}

// Revert runs a Reverter until Stop or the end of the test. revert is called with each
// object that was added or modified, and reports whether it has written.
func Revert(t testing.TB, objects dynamic.ResourceInterface, revert func(context.Context, *unstructured.Unstructured) bool) *Reverter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := objects.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reverter{}
	var done sync.WaitGroup
	done.Go(func() {
		for e := range w.ResultChan() {
			obj, ok := e.Object.(*unstructured.Unstructured)
			if ok && e.Type != watch.Deleted && revert(ctx, obj) {
				r.reverted.Add(1)
			}
		}
	})
	r.stop = func() { cancel(); w.Stop(); done.Wait() }
	t.Cleanup(r.Stop)
	return r
}

// Stop ends it. It may be called again.
func (r *Reverter) Stop() { r.stop() }

// Reverted is how often it has written.
func (r *Reverter) Reverted() int { return int(r.reverted.Load()) }
