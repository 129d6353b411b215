// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// waited is how long the next request waits.
func waited(t *testing.T, p *requestBackoff) time.Duration {
	t.Helper()
	began := time.Now()
	if err := p.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

func answerOf(code int) error {
	return apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{Resource: "pods"}, "", "", 0, false)
}

// However long watches are cut every few seconds and single requests fail, a stream
// is up to date seconds later.
func TestAWatchThatIsCutAgainAndAgainIsSoonThereAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRequestBackoff(defaultTiming)
		for i := range 200 {
			p.reset()
			p.endedEarly()
			if i%5 == 0 {
				p.recordFailure(answerOf(http.StatusInternalServerError))
			}
			if i%7 == 0 {
				p.forbidden()
			}
			if d := waited(t, p); d > 5*time.Second {
				t.Fatalf("cut %d is followed by a delay of %s", i, d)
			}
			p.answered()
			time.Sleep(2 * time.Second)
		}
	})
}

// What fails whenever it is asked is asked less and less often.
func TestDelaysAfterFailuresInARowGrow(t *testing.T) {
	for name, fail := range map[string]func(*requestBackoff){
		"failed":    func(p *requestBackoff) { p.recordFailure(answerOf(http.StatusServiceUnavailable)) },
		"forbidden": (*requestBackoff).forbidden,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newRequestBackoff(defaultTiming)
				first := waited(t, p)
				var last time.Duration
				for range 20 {
					fail(p)
					last = waited(t, p)
				}
				if first != 0 || last < 30*time.Second {
					t.Errorf("at first there is a delay of %s, after many failures of %s", first, last)
				}
				p.reset()
				p.answered()
				fail(p)
				if again := waited(t, p); again > 3*time.Second {
					t.Errorf("a failure after a success is followed by a delay of %s", again)
				}
			})
		})
	}
}
