// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package httpserver

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/runtime/health"
)

// A server that waits for its port tries it again and again, and its end is not held up
// by the wait.
func TestStopWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		taken := func() (net.Listener, error) {
			tries++
			return nil, errors.New("address already in use")
		}
		s := New("api", Limits{}, http.NotFoundHandler(), slog.New(slog.DiscardHandler), health.NewTree().Reporter("health"), taken)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(RetryInterval)
		synctest.Wait()
		if tries != 2 {
			t.Errorf("%d attempts to listen, want 2", tries)
		}
		began := time.Now()
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %s", took)
		}
	})
}
