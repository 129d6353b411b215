// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// waited is how long the next request waits.
func waited(t *testing.T, p *pace) time.Duration {
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
		p := newPace(defaultTiming)
		for i := range 200 {
			p.read()
			p.endedEarly()
			if i%5 == 0 {
				p.fail(answerOf(http.StatusInternalServerError))
			}
			if i%7 == 0 {
				p.forbid()
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
	for name, fail := range map[string]func(*pace){
		"failed":    func(p *pace) { p.fail(answerOf(http.StatusServiceUnavailable)) },
		"forbidden": (*pace).forbid,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPace(defaultTiming)
				first := waited(t, p)
				var last time.Duration
				for range 20 {
					fail(p)
					last = waited(t, p)
				}
				if first != 0 || last < 30*time.Second {
					t.Errorf("at first there is a delay of %s, after many failures of %s", first, last)
				}
				p.read()
				p.answered()
				fail(p)
				if again := waited(t, p); again > 3*time.Second {
					t.Errorf("a failure after a success is followed by a delay of %s", again)
				}
			})
		})
	}
}
