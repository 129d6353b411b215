// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/internal/workers"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// deaf is a handler that does not end with its context.
func deaf(release chan struct{}) { <-release }

// K8S-21: a handler that does not return holds a stop for six seconds, and the error has its key and where it stands.
func TestAHandlerThatDoesNotReturnIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig()
		q := NewQueue(r.scope, "check", func(ctx context.Context, key slim.Key) error {
			if key.Name == "q7" {
				deaf(release)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		for _, name := range []string{"q6", "q7", "q8"} {
			q.Add(slim.Key{Namespace: "bb", Name: name})
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- q.Run(ctx) }()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if log := r.log.String(); strings.Count(log, `msg="attempt takes long" rule="ipam.test check" key=bb/q7`) != 1 {
			t.Errorf("the log says:\n%s", log)
		}
		began := time.Now()
		cancel()
		err := <-ended
		if took := time.Since(began); took != workers.Grace {
			t.Errorf("the stop took %s", took)
		}
		hang := new(lifecycle.HangError)
		if !errors.As(err, &hang) || hang.Step != "ipam.test check, bb/q7" || strings.Count(err.Error(), "hangs") != 1 ||
			!strings.HasPrefix(hang.Stack, "  reconcile.deaf (resources/reconcile/stop_test.go:") {
			t.Errorf("Run: %v", err)
		}
		close(release)
	})
}

// K8S-21: so does a mapping function.
func TestAMappingFunctionThatDoesNotReturnIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets, release := local(t), make(chan struct{})
		put(widgets, "a")
		put(widgets, "bad")
		widgets.Synced()
		s := &watched[widget]{kind: kindOf("widgets", "Widget"), stream: widgets, keys: func(ch stream.Change[widget]) []slim.Key {
			if ch.Key.Name == "bad" {
				deaf(release)
			}
			return []slim.Key{ch.Key}
		}}
		r := testRunner(health.NewTree(), &recorder{}, s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.run(ctx) }()
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		err := <-ended
		if took := time.Since(began); took != watchGrace {
			t.Errorf("the stop took %s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "watch of widgets.example.com, bad hangs; it stands at:\n  reconcile.deaf (resources/reconcile/stop_test.go:") {
			t.Errorf("run: %v", err)
		}
		close(release)
	})
}
