// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(cell.Module("user", "Asks for a scope", cell.Invoke(func(Scope) {}))))
}

// gate is a module with a door in a term.
type gate struct {
	scope Scope
	tree  *health.Tree
}

func newGate(t *testing.T) *gate {
	g := &gate{tree: health.NewTree()}
	fence := leading.Unfenced()
	t.Cleanup(fence.Close)
	g.scope = Scope{
		Module: cell.ModuleInfo{ID: "fjord.floating", Term: "leader"}, Log: slog.New(slog.DiscardHandler),
		Health: g.tree.Reporter("fjord.floating"), Fence: fence, Book: explain.NewHistory(), metrics: newMetrics(), strict: true,
	}
	return g
}

func (g *gate) degraded() string {
	var ids []string
	for _, s := range g.tree.Degraded() {
		ids = append(ids, s.ID+": "+s.Message)
	}
	return strings.Join(ids, ", ")
}

func why(ctx context.Context) context.Context {
	return k8s.WithCause(ctx, &k8s.Cause{Rule: "fjord.floating give", Triggers: []k8s.Trigger{{Kind: "Service", Namespace: "default", Name: "s"}}})
}

var give = Call{Verb: "put", Resource: "addresses", Name: "s", Request: []byte(`{"service":"s"}`)}

// A call that changes something is made by a module of the term, under its fence, with a cause, and never in a plan.
func TestWhenAChangeIsMade(t *testing.T) {
	shut := leading.Unfenced()
	shut.Close()
	for name, test := range map[string]struct {
		change func(*Scope)
		ctx    context.Context
		call   func(*Call, *bool)
		want   error
		made   bool
	}{
		"in the term":      {made: true},
		"in the process":   {change: func(s *Scope) { s.Module.Term = "" }, want: k8s.ErrReadOnly},
		"without a fence":  {change: func(s *Scope) { s.Fence = nil }, want: leading.ErrFenced},
		"behind the fence": {change: func(s *Scope) { s.Fence = shut }, want: leading.ErrFenced},
		"without a cause":  {ctx: t.Context(), want: k8s.ErrNoCause},
		"in production":    {ctx: t.Context(), change: func(s *Scope) { s.strict = false }, made: true},
		"in a plan":        {change: func(s *Scope) { s.Plan = dryrun.New(time.Minute) }, want: ErrPlanned},
		"in a plan that answers": {
			change: func(s *Scope) { s.Plan = dryrun.New(time.Minute) },
			call:   func(c *Call, answered *bool) { c.Planned = func() { *answered = true } },
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx, call, answered := newGate(t), test.ctx, give, false
			if test.change != nil {
				test.change(&g.scope)
			}
			if test.call != nil {
				test.call(&call, &answered)
			}
			if ctx == nil {
				ctx = why(t.Context())
			}
			made := false
			err := New(g.scope, "fjord", Limits{}).Do(ctx, call, func(context.Context) error { made = true; return nil })
			if !errors.Is(err, test.want) || made != test.made || answered != (test.call != nil) {
				t.Errorf("%v, made: %t, answered: %t", err, made, answered)
			}
			if n := len(g.scope.Book.Writes(0)); n != map[bool]int{true: 1}[made] {
				t.Errorf("%d writes are remembered", n)
			}
		})
	}
}

// What is made is listed with its cause, what is planned is in the plan.
func TestCallsAreToldLikeWrites(t *testing.T) {
	g := newGate(t)
	_ = New(g.scope, "fjord", Limits{}).Do(why(t.Context()), give, func(context.Context) error { return nil })
	w := g.scope.Book.Writes(0)[0]
	_, text, _ := strings.Cut(w.String(), "  ")
	if want := "put fjord/addresses s: ok; fjord.floating give, set off by Service default/s"; text != want {
		t.Errorf("%s", text)
	}
	g.scope.Plan = dryrun.New(30 * time.Second)
	d := New(g.scope, "fjord", Limits{})
	call := give
	call.Planned = func() {}
	report, err := g.scope.Plan.Make(t.Context(), func(context.Context) error {
		_ = d.Do(why(t.Context()), call, nil) // the first look; the next one finds nothing of it at the server
		return d.Do(why(t.Context()), call, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := report.WriteText(&b); err != nil || !strings.Contains(b.String(), "fjord.floating give:\n  put fjord addresses/s; set off by Service default/s\nPlan: 1 write") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// The context of a call ends when the fence shuts.
func TestACallEndsWithItsFence(t *testing.T) {
	g := newGate(t)
	err := New(g.scope, "fjord", Limits{}).Do(why(t.Context()), give, func(ctx context.Context) error {
		g.scope.Fence.Close()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, leading.ErrFenced) {
		t.Error(err)
	}
}

// All calls share the rate.
func TestTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		d := New(g.scope, "fjord", Limits{QPS: 2, Burst: 1})
		began := time.Now()
		for i := range 5 {
			var err error
			if i%2 == 0 {
				err = d.Do(why(t.Context()), give, func(context.Context) error { return nil })
			} else {
				err = d.Read(t.Context(), func(context.Context) error { return nil })
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("5 calls took %s", took)
		}
	})
}

// served answers requests, within the bubble of a test.
type served func(*http.Request) *http.Response

func (s served) RoundTrip(req *http.Request) (*http.Response, error) {
	if resp := s(req); resp != nil {
		resp.Request = req
		return resp, nil
	}
	return nil, errors.New("connection refused")
}

func answer(code int, body string, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i+1 < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

// A server that asks for a pause is left alone meanwhile, and its callers do not wait: five minutes at the most.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, calls, next := newGate(t), 0, answer(http.StatusTooManyRequests, "", "Retry-After", "60")
		d := New(g.scope, "fjord", Limits{})
		client := &http.Client{Transport: d.Transport(served(func(*http.Request) *http.Response { calls++; return next }), nil)}
		put := func() (int, error) {
			req, _ := http.NewRequestWithContext(why(t.Context()), http.MethodPut, "http://fjord/v1/addresses/s", strings.NewReader(`{}`))
			resp, err := client.Do(req)
			if err != nil {
				return 0, err
			}
			defer resp.Body.Close()
			return resp.StatusCode, nil
		}
		if code, err := put(); code != http.StatusTooManyRequests || err != nil {
			t.Errorf("%d, %v", code, err)
		}
		began := time.Now()
		for range 3 {
			_, err := put()
			if throttle := new(ThrottledError); !errors.As(err, &throttle) || throttle.RetryAfter() != time.Minute {
				t.Errorf("%v", err)
			}
		}
		if time.Since(began) > 0 || calls != 1 {
			t.Errorf("it waited %s and made %d calls", time.Since(began), calls)
		}
		if got, want := g.degraded(), "fjord.floating.outside-fjord: the server asks for a pause of 1m0s, 1m0s are kept"; got != want {
			t.Errorf("degraded: %s", got)
		}
		time.Sleep(time.Minute)
		next = answer(http.StatusServiceUnavailable, "", "Retry-After", "3600")
		_, _ = put()
		time.Sleep(maxPause)
		next = answer(http.StatusOK, "{}")
		if code, err := put(); code != http.StatusOK || err != nil || calls != 3 || g.degraded() != "" {
			t.Errorf("%d, %v, %d calls, degraded: %s", code, err, calls, g.degraded())
		}
	})
}

// What a client reads through the door, and what becomes of health.
func TestTransport(t *testing.T) {
	g := newGate(t)
	var next *http.Response
	d := New(g.scope, "fjord", Limits{})
	client := &http.Client{Transport: d.Transport(served(func(*http.Request) *http.Response { return next }), nil)}
	do := func(method, body string) (string, error) {
		req, _ := http.NewRequestWithContext(why(t.Context()), method, "http://fjord/v1/addresses/s", strings.NewReader(body))
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return http.StatusText(resp.StatusCode) + " " + string(text), err
	}
	for _, step := range []struct {
		method   string
		next     *http.Response
		want     string
		degraded bool
	}{
		{http.MethodPut, answer(http.StatusOK, `{"ip":"203.0.113.4"}`), `OK {"ip":"203.0.113.4"}`, false},
		{http.MethodGet, answer(http.StatusOK, `{}`), `OK {}`, false},
		{http.MethodGet, answer(http.StatusNotFound, "no"), "Not Found no", false},
		{http.MethodPut, answer(http.StatusConflict, "taken"), "Conflict taken", false},
		{http.MethodPut, answer(http.StatusInternalServerError, "oops"), "Internal Server Error oops", true},
		{http.MethodGet, answer(http.StatusNotFound, ""), "Not Found ", false},
		{http.MethodDelete, nil, "", true},
		{http.MethodDelete, answer(http.StatusNoContent, ""), "No Content ", false},
	} {
		next = step.next
		got, err := do(step.method, `{"a":1}`)
		if got != step.want || (err != nil) != (step.next == nil) || (g.degraded() != "") != step.degraded {
			t.Errorf("%s: %q, %v, degraded: %s", step.method, got, err, g.degraded())
		}
	}
	var listed []string
	for _, w := range g.scope.Book.Writes(0) {
		listed = append(listed, w.Verb+" "+w.Resource+" "+w.Name+" "+w.Result)
	}
	if diff := cmp.Diff([]string{
		"put fjord/v1/addresses s ok", "put fjord/v1/addresses s 409 Conflict", "put fjord/v1/addresses s 500 Internal Server Error",
		"delete fjord/v1/addresses s connection refused", "delete fjord/v1/addresses s ok",
	}, listed); diff != "" {
		t.Error(diff)
	}
}

// In a plan a client reads what the server has, and changes nothing.
func TestTransportInAPlan(t *testing.T) {
	g := newGate(t)
	g.scope.Plan = dryrun.New(time.Minute)
	sent := 0
	server := served(func(*http.Request) *http.Response { sent++; return answer(http.StatusOK, "{}") })
	d := New(g.scope, "fjord", Limits{})
	for name, test := range map[string]struct {
		answer func(*http.Request, []byte) *http.Response
		want   string
	}{
		"answered": {func(_ *http.Request, body []byte) *http.Response { return answer(http.StatusOK, string(body)) }, `{"a":1}`},
		"not":      {nil, ""},
	} {
		client := &http.Client{Transport: d.Transport(server, test.answer)}
		req, _ := http.NewRequestWithContext(why(t.Context()), http.MethodPost, "http://fjord/v1/addresses", strings.NewReader(`{"a":1}`))
		resp, err := client.Do(req)
		if test.want == "" {
			if !errors.Is(err, ErrPlanned) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); string(text) != test.want || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if sent != 0 {
		t.Errorf("%d requests are sent", sent)
	}
	if resp, err := (&http.Client{Transport: d.Transport(server, nil)}).Get("http://fjord/v1/addresses"); err != nil || sent != 1 {
		t.Errorf("%v, %d requests are sent", err, sent)
	} else {
		resp.Body.Close()
	}
}
