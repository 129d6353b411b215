// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"github.com/skep-operator/skep/resources/k8s"
)

// silentServer never answers; a deaf one does not even heed the context.
type silentServer struct {
	deaf chan struct{}
	asks atomic.Int32
}

func (s *silentServer) Address() string { return "https://api" }
func (s *silentServer) Version(ctx context.Context) (*version.Info, error) {
	s.asks.Add(1)
	if s.deaf != nil {
		<-s.deaf
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// API-1: an answer within two seconds, and no more than one question at a time.
func TestTheHealthCheckIsHeldUpByNothing(t *testing.T) {
	for name, c := range map[string]struct {
		deaf, stuck bool // the server, the check of a duty
		text        string
		asks        int32
	}{
		"a silent server":            {text: "unable to reach the API server https://api", asks: 3},
		"one that heeds nothing":     {deaf: true, text: "one of them hangs", asks: 1},
		"a check that heeds nothing": {stuck: true, text: "one of them hangs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs := make(chan struct{})
				server, params := &silentServer{}, CheckParams{}
				if params.Server = server; c.deaf {
					server.deaf = hangs
				}
				if c.stuck {
					params.Checks = []k8s.HealthCheck{{Name: "x", Check: func(context.Context) error { <-hangs; return nil }}}
				}
				check := NewCheck(params)
				for range 3 {
					began := time.Now()
					err := check.Run(t.Context())
					if err == nil || !strings.Contains(err.Error(), c.text) || time.Since(began) > checkTimeout {
						t.Errorf("after %s: %v", time.Since(began), err)
					}
				}
				if n := server.asks.Load(); n != c.asks {
					t.Errorf("the server is asked %d times, want %d", n, c.asks)
				}
				close(hangs)
				synctest.Wait()
			})
		})
	}
}
