// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/health"
)

// Door is the way of one module to one server. It is safe for concurrent use.
type Door struct {
	scope  Scope
	server string
	budget *budget
	health health.Reporter
	api    *APIMetrics // nil: operations are not counted

	mu      sync.Mutex
	failing bool
	planned map[string]bool // calls that are in the plan already
}

// Limits bound the rate of all calls to a server, through whatever door: the first door that is made has its limits hold.
// The zero value is 10 calls a second, 20 at once.
type Limits struct {
	QPS   float64
	Burst int
}

// New returns the door to a server, which is called so in metrics, health, plans and the list of writes: one word in
// lower case.
func New(s Scope, server string, l Limits) *Door {
	if l.QPS <= 0 {
		l.QPS = 10
	}
	if l.Burst <= 0 {
		l.Burst = 20
	}
	return &Door{scope: s, server: server, budget: s.budgets.of(server, l), health: s.Health.Child("outside-" + server)}
}

// Measured has the door count its calls by their operation. It is called before the first call, and returns the door.
func (d *Door) Measured(m *APIMetrics) *Door {
	d.api = m
	return d
}

// Call is a call that changes something.
type Call struct {
	Verb     string // what is done, in lower case: put, delete, attach
	Resource string // to what: addresses
	Name     string
	// Operation is the call in the words of the server's API, for metrics: AssignPrivateIpAddresses. "" is Verb.
	Operation string
	// Request is what is sent, for plans. It has no secrets.
	Request json.RawMessage
	// Planned is called in a plan in place of the call, and leaves what the call would have found out. Without it
	// the call fails with ErrPlanned in a plan.
	Planned func()
}

// ErrPlanned is the error of a call that was planned and whose answer is not known: the plan is not continued there.
// It is not returned outside of plans, and not for a call with Planned.
var ErrPlanned = errors.New("planned, and not made: what the server would answer is not known")

// ThrottledError says that the server wants to be left alone.
type ThrottledError struct {
	Server string
	Until  time.Time
}

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("%s asks for a pause until %s", e.Server, e.Until.Format(time.TimeOnly))
}

// RetryAfter is how long the pause still is.
func (e *ThrottledError) RetryAfter() time.Duration { return time.Until(e.Until) }

// Throttled is the error of a call after which the server wants to be left alone for d, for clients whose answers a
// door cannot read. Five minutes is the most that is obeyed.
func Throttled(err error, d time.Duration) error { return &throttled{err, d} }

type throttled struct {
	error
	pause time.Duration
}

func (t *throttled) Unwrap() error { return t.error }

// maxPause bounds what a server can ask for: one that asks for an hour is asked again before.
const maxPause = 5 * time.Minute

// Do makes a call that changes something. make is not called outside the term, behind a shut fence, in a plan, or
// while the server wants to be left alone; its context ends when the fence shuts.
func (d *Door) Do(ctx context.Context, c Call, make func(context.Context) error) error {
	if err := d.do(ctx, c, make); err != nil {
		return fmt.Errorf("%s %s/%s at %s: %w", c.Verb, c.Resource, c.Name, d.server, err)
	}
	return nil
}

func (d *Door) do(ctx context.Context, c Call, make func(context.Context) error) error {
	cause := explain.CauseOf(ctx)
	switch {
	case d.scope.Module.Term == "":
		return k8s.ErrReadOnly
	case cause == nil && d.scope.strict:
		return k8s.ErrNoCause
	case d.scope.Plan != nil:
		return d.plan(ctx, c)
	case d.scope.Fence == nil:
		return leading.ErrFenced
	}
	operation := cmp.Or(c.Operation, c.Verb)
	if err := d.admit(ctx, operation); err != nil {
		return err
	}
	if err := d.scope.Fence.Check(); err != nil {
		return err
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.scope.Fence.Context(), func() { cancel(leading.ErrFenced) })()
	began := time.Now()
	err := make(limited)
	if err != nil && d.scope.Fence.Check() != nil {
		err = errors.Join(leading.ErrFenced, err)
	}
	d.record(c.Verb, operation, time.Since(began), err)
	err = d.asked(err)
	d.scope.Book.RecordWrite(explain.Write{
		Module: d.scope.Module.ID, Verb: c.Verb, Resource: d.server + "/" + c.Resource, Name: c.Name,
		Result: resultOf(err), Took: time.Since(began), Cause: cause,
	})
	return err
}

func resultOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// plan records a call in place of making it.
func (d *Door) plan(ctx context.Context, c Call) error {
	if d.isNew(c) {
		d.scope.Plan.Record(ctx, dryrun.Write{
			Module: d.scope.Module.ID, Store: d.server, Verb: c.Verb, Resource: c.Resource, Name: c.Name, Request: c.Request,
		})
	}
	if c.Planned == nil {
		return ErrPlanned
	}
	c.Planned()
	return nil
}

// isNew reports whether a call is not in the plan yet. A duty that reads the server finds nothing of what is planned,
// and makes the same call again.
func (d *Door) isNew(c Call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := strings.Join([]string{c.Verb, c.Resource, c.Name, string(c.Request)}, "\x00")
	if d.planned[id] {
		return false
	}
	if d.planned == nil {
		d.planned = map[string]bool{}
	}
	d.planned[id] = true
	return true
}

// Read makes a call that changes nothing. It is made in plans and on standbys, too.
func (d *Door) Read(ctx context.Context, make func(context.Context) error) error {
	return d.ReadOperation(ctx, "read", make)
}

// ReadOperation is Read for a call that has a name in the server's API, for metrics.
func (d *Door) ReadOperation(ctx context.Context, operation string, make func(context.Context) error) error {
	if err := d.admit(ctx, operation); err != nil {
		return fmt.Errorf("reading from %s: %w", d.server, err)
	}
	began := time.Now()
	err := make(ctx)
	d.record("read", operation, time.Since(began), err)
	if err = d.asked(err); err != nil {
		return fmt.Errorf("reading from %s: %w", d.server, err)
	}
	return nil
}

// admit waits for the door's turn, or returns that the server wants to be left alone.
func (d *Door) admit(ctx context.Context, operation string) error {
	if err := d.throttled(); err != nil {
		return err
	}
	began := time.Now()
	if err := d.budget.limiter.Wait(ctx); err != nil {
		return err
	}
	d.api.waited(operation, time.Since(began))
	return d.throttled() // what was asked for meanwhile
}

func (d *Door) throttled() error {
	if until := d.budget.pausedUntil(); time.Now().Before(until) {
		return &ThrottledError{d.server, until}
	}
	return nil
}

// isRefusal reports whether an error of a client library is the answer to a request that is to blame itself.
func isRefusal(err error) bool {
	var answer interface{ HTTPStatusCode() int }
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.HTTPStatusCode(); code {
	case http.StatusUnauthorized, http.StatusForbidden: // what the module may do is to blame
		return false
	default:
		return code >= http.StatusBadRequest && !(&answerError{code}).fault()
	}
}

// asked is the error of a call, a ThrottledError, too, if its answer has asked for a pause.
func (d *Door) asked(err error) error {
	if err == nil || !errors.As(err, new(*throttled)) {
		return err
	}
	if pause := d.throttled(); pause != nil {
		return fmt.Errorf("%w: %w", pause, err)
	}
	return err
}

// record counts a call, and sets the health of the server.
func (d *Door) record(verb, operation string, took time.Duration, err error) {
	outcome := "success"
	if err != nil {
		outcome = "fail"
	}
	if d.scope.metrics != nil {
		d.scope.metrics.Calls.WithLabelValues(d.scope.Module.ID, d.server, verb, outcome).Observe(took.Seconds())
	}
	d.api.made(operation, took, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := new(throttled); errors.As(err, &t) {
		pause := min(t.pause, maxPause)
		d.budget.pauseFor(pause)
		d.health.Degraded(fmt.Sprintf("the server asks for a pause of %s, %s are kept", t.pause, pause), t.error)
		d.failing = true
		return
	}
	answer := new(answerError)
	switch {
	case err == nil || errors.As(err, &answer) && !answer.fault() || isRefusal(err):
		if d.failing {
			d.failing = false
			d.health.OK("")
		}
	case errors.Is(err, context.Canceled):
	default:
		d.health.Degraded("the server does not do what it is asked", err)
		d.failing = true
	}
}
