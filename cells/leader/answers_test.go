// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lies are answers that are not those of the API server about the lease.
var lies = map[string]struct {
	code int
	text string
}{
	"404 as text":              {http.StatusNotFound, "404 page not found"},
	"409 as text":              {http.StatusConflict, "conflict"},
	"another object not found": {http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"kind":"namespaces","name":"default"}}`},
	"404 without details":      {http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`},
	"HTML":                     {http.StatusOK, "<html>welcome</html>"},
	"empty":                    {http.StatusOK, ""},
	"null":                     {http.StatusOK, "null"},
	"no fields":                {http.StatusOK, "{}"},
	"success":                  {http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
	"failure under 200":        {http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict"}`},
	"another lease":            {http.StatusOK, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"other","namespace":"default","uid":"1","resourceVersion":"1"},"spec":{}}`},
	"an older state":           {http.StatusOK, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"cilium-operator-resource-lock","namespace":"default","uid":"uid-1","resourceVersion":"1"},"spec":{"holderIdentity":"x","leaseTransitions":0}}`},
	"a list":                   {http.StatusOK, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","items":[]}`},
	"another kind":             {http.StatusOK, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"cilium-operator-resource-lock","namespace":"default","uid":"1","resourceVersion":"1"}}`},
	"truncated":                {http.StatusOK, `{"kind":"Lease","apiVersion":"coordi`},
	"no content":               {http.StatusNoContent, ""},
	"unauthorized":             {http.StatusUnauthorized, "who are you"},
	"gone":                     {http.StatusGone, "gone"},
}

// LEAD-13: lies neither make a replica lead, nor end a term that is renewed in time.
func TestAnAnswerThatIsNotAboutTheLease(t *testing.T) {
	for name, lie := range lies {
		spoil := func(methods string) func(*http.Request, *http.Response) (int, string) {
			return func(req *http.Request, _ *http.Response) (int, string) {
				if !strings.Contains(methods, req.Method) {
					return 0, ""
				}
				return lie.code, lie.text
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, methods := range []string{"GET", "PUT POST"} {
				synctest.Test(t, func(t *testing.T) { lieToTheHolder(t, methods, spoil(methods)) })
				synctest.Test(t, func(t *testing.T) { lieToTheStandby(t, methods, spoil(methods)) })
				synctest.Test(t, func(t *testing.T) { lieAtTheStart(t, methods, spoil(methods)) })
			}
		})
	}
}

// lieToTheHolder lies to a holder for less than its renew deadline, and then for ever.
func lieToTheHolder(t *testing.T, methods string, lie func(*http.Request, *http.Response) (int, string)) {
	s := newSimulation(t)
	defer s.stop()
	a := s.start("a")
	s.awaitWriter(time.Second)
	s.start("b")
	time.Sleep(1200 * time.Millisecond)
	a.setSpoil(lie)
	time.Sleep(1500 * time.Millisecond)
	a.setSpoil(nil)
	time.Sleep(4 * time.Second)
	if w := s.writers(); len(w) != 1 || w[0] != "a" || a.countTerms() != 1 {
		t.Errorf("%s, for a while: %v write, a in its term number %d", methods, w, a.countTerms())
	}
	a.setSpoil(lie)
	time.Sleep(8 * time.Second)
	if w := s.writers(); len(w) > 1 {
		t.Errorf("%s: %v write", methods, w)
	}
	a.setSpoil(nil)
	if s.awaitWriter(12*time.Second) == "" {
		t.Errorf("%s: nobody leads after the lies", methods)
	}
}

// lieToTheStandby lies to a standby while the holder renews, and when it is gone.
func lieToTheStandby(t *testing.T, methods string, lie func(*http.Request, *http.Response) (int, string)) {
	s := newSimulation(t)
	defer s.stop()
	a := s.start("a")
	s.awaitWriter(time.Second)
	b := s.start("b")
	time.Sleep(1200 * time.Millisecond)
	b.setSpoil(lie)
	time.Sleep(4 * time.Second)
	if w := s.writers(); len(w) != 1 || w[0] != "a" || a.countTerms() != 1 {
		t.Errorf("%s, to the standby: %v write, a in its term number %d", methods, w, a.countTerms())
	}
	if status := b.health.Snapshot()[0]; methods == "GET" && !strings.Contains(t.Name(), "older") && status.Level != "Degraded" {
		t.Errorf("%s, to the standby: it is %s %q", methods, status.Level, status.Message)
	}
	a.setCut(true)
	time.Sleep(8 * time.Second)
	b.setSpoil(nil)
	if w := s.awaitWriter(12 * time.Second); w != "b" {
		t.Errorf("%s: %q leads after the lies to the standby", methods, w)
	}
}

// lieAtTheStart lies about a lease that does not exist.
func lieAtTheStart(t *testing.T, methods string, lie func(*http.Request, *http.Response) (int, string)) {
	s := newSimulation(t)
	defer s.stop()
	s.startSpoilt("a", lie)
	s.startSpoilt("b", lie)
	time.Sleep(2 * time.Second)
	if w := s.writers(); len(w) > 0 {
		t.Errorf("%s, at the start: %v write", methods, w)
	}
	for _, p := range s.participants() {
		p.setSpoil(nil)
	}
	if s.awaitWriter(12*time.Second) == "" {
		t.Errorf("%s, at the start: nobody leads after the lies", methods)
	}
}

// LEAD-13: a replica does not hold a lease that others read differently.
func TestAWebhookThatRewritesTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		rewrite func(lease object)
		leads   bool
	}{
		"another holder":    {func(l object) { set(l, "holderIdentity", "other") }, false},
		"no holder":         {func(l object) { set(l, "holderIdentity", "") }, false},
		"no renewal":        {func(l object) { set(l, "renewTime", absent) }, false},
		"a fixed renewal":   {func(l object) { set(l, "renewTime", "2000-01-01T00:00:00.000000Z") }, false},
		"no transitions":    {func(l object) { set(l, "leaseTransitions", absent) }, false},
		"a longer duration": {func(l object) { set(l, "leaseDurationSeconds", 20) }, true},
		"a label":           {func(l object) { l["metadata"].(object)["labels"] = object{"team": "x"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(t)
				defer s.stop()
				s.api.rewrite = c.rewrite
				s.start("a")
				time.Sleep(500 * time.Millisecond)
				s.start("b")
				time.Sleep(20 * time.Second)
				if w := s.writers(); c.leads != (len(w) == 1) {
					t.Errorf("%v write", w)
				}
				s.api.setRewrite(nil)
				if s.awaitWriter(12*time.Second) == "" {
					t.Error("nobody leads without the webhook")
				}
			})
		})
	}
}
