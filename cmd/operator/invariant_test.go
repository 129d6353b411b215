// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// A restart on a converged cluster makes no mutating call but those for the
// lease and the questions about permissions.
func TestInvariant1RestartMakesNoWrites(t *testing.T) {
	w := newWorld(t)
	o, _ := w.run("first", nil)
	o.leads()
	o.says("caches synced, allocating pod CIDRs", 1)
	w.addNodes("node", 40)
	w.addNode("has", "10.200.0.0/24")
	w.addNode("foreign", "192.168.7.0/24")
	w.addNode("garbage", "not-a-cidr")
	w.addNode("twice", "10.200.0.0/24")
	w.settled()
	w.refused("foreign", "garbage", "twice")
	w.served("last-of-first")
	if code := o.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	audit := w.Audit(t)
	o, _ = w.run("second", nil)
	o.leads()
	o.says("caches synced, allocating pod CIDRs", 1)
	w.served("sentinel")
	if code := o.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	seen := w.requests(audit, "second")
	if len(seen) == 0 {
		t.Fatal("the audit log knows nothing of the restarted operator")
	}
	sentinel := func(e clustertest.AuditEvent) bool { return e.ObjectRef.Name == "sentinel" }
	if n := len(seen.writes().which(sentinel)); n != 1 {
		t.Errorf("%d writes for a new node, not 1", n)
	}
	if others := seen.writes().which(func(e clustertest.AuditEvent) bool { return !sentinel(e) }); len(others) > 0 {
		t.Errorf("a restart wrote:\n%s", others)
	}
}

// slack is how late the proxy may read from its socket what was sent in time: less than
// the time from the end of the fence until another may take a quick lease.
const slack = 500 * time.Millisecond

// checkTerms holds every write of users to the terms that the lease grants: what was sent,
// by when it was, and what was stored, by the order in which it was.
func checkTerms(t testing.TB, all requests, renewDeadline time.Duration, users ...string) {
	t.Helper()
	for _, user := range users {
		c := newTerms(user, renewDeadline)
		for _, late := range c.check(all) {
			t.Error(late)
		}
		if c.writes == 0 {
			t.Errorf("%s wrote nothing: the test shows nothing", user)
		}
	}
	for _, late := range storedOutsideTerms(all) {
		t.Error(late)
	}
}

// terms are those that the lease grants a user: from a successful write of the lease by
// the user until the renew deadline after it. Times are those at which the last byte of a
// request had left the user's socket: what is slow or away behind that has no part in it.
type terms struct {
	user          string
	renewDeadline time.Duration
	until         time.Time
	writes        int
	latest        time.Duration // of all writes, the most after the end of a term; negative is before
}

func newTerms(user string, renewDeadline time.Duration) *terms {
	return &terms{user: user, renewDeadline: renewDeadline, latest: -renewDeadline}
}

// check holds every write of the user to its terms, whatever was answered: a server
// that gives up on a request may have stored it. What check is called with follows
// what it was called with before. It returns what broke the terms.
func (c *terms) check(all requests) (broken []string) {
	for _, e := range all.which(func(e clustertest.AuditEvent) bool { return e.User.Username == c.user && e.Mutates() }) {
		sent, known := e.Sent()
		switch {
		case !known:
			broken = append(broken, fmt.Sprintf("it is not known when %s sent a request: it did not go through a proxy: %s", c.user, requests{e}))
		case onLease(e) && e.ResponseStatus.Code < 300:
			end, err := termEnd(e, sent, c.renewDeadline)
			if err != nil {
				broken = append(broken, err.Error())
			}
			c.until = end
		case !onLease(e):
			c.writes++
			late := sent.Sub(c.until)
			c.latest = max(c.latest, late)
			if late > slack {
				broken = append(broken, fmt.Sprintf("%s wrote %s after the end of its term: %s", c.user, late, requests{e}))
			}
		}
	}
	return broken
}

// termEnd is when the term ends that a write of the lease grants, which was sent at that
// time: a release ends it at once.
func termEnd(e clustertest.AuditEvent, sent time.Time, renewDeadline time.Duration) (time.Time, error) {
	held, err := holds(e)
	if err != nil || !held {
		return sent, err
	}
	return sent.Add(renewDeadline), nil
}

// holds reports whether a write of the lease makes its user the holder, or releases it.
func holds(e clustertest.AuditEvent) (bool, error) {
	var lease coordinationv1.Lease
	if err := json.Unmarshal(e.RequestObject, &lease); err != nil {
		return false, fmt.Errorf("the audit log does not tell what was written to the lease: %w: %s", err, requests{e})
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "") != "", nil
}

// storedOutsideTerms are the ConfigMaps that were stored while another user held the
// lease, or none, in the order in which the API server stored them: no clock has a part in
// it. All who write the lease are in the requests.
func storedOutsideTerms(all requests) (broken []string) {
	stored := all.which(func(e clustertest.AuditEvent) bool { return e.Revision() > 0 })
	slices.SortFunc(stored, func(a, b clustertest.AuditEvent) int { return cmp.Compare(a.Revision(), b.Revision()) })
	holder := ""
	for _, e := range stored {
		switch {
		case onLease(e):
			held, err := holds(e)
			if err != nil {
				broken = append(broken, err.Error())
			}
			if holder = ""; held {
				holder = e.User.Username
			}
		case e.User.Username != holder:
			broken = append(broken, fmt.Sprintf("%s wrote revision %d while the lease was held by %q: %s", e.User.Username, e.Revision(), holder, requests{e}))
		}
	}
	return broken
}

func TestTerms(t *testing.T) {
	start := time.Now()
	event := func(after time.Duration, resource, object string, code int) clustertest.AuditEvent {
		var e clustertest.AuditEvent
		e.User.Username, e.Verb, e.ObjectRef.Resource = "first", "update", resource
		e.RequestObject, e.ResponseStatus.Code = json.RawMessage(object), code
		e.AuditID = control.AuditID(start.Add(after))
		e.RequestReceivedTimestamp = start.Add(time.Hour) // what is sent in time may be late
		return e
	}
	held, released := `{"spec":{"holderIdentity":"first"}}`, `{"spec":{"holderIdentity":""}}`
	lease, direct := event(0, "leases", held, http.StatusOK), event(time.Second, "configmaps", "", http.StatusOK)
	direct.AuditID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
	for _, test := range []struct {
		name  string
		write clustertest.AuditEvent
		after []clustertest.AuditEvent
		late  bool
	}{
		{"in the term", event(time.Second, "configmaps", "", http.StatusOK), nil, false},
		{"after the term", event(time.Second+slack+1, "configmaps", "", http.StatusOK), nil, true},
		{"after the term, refused", event(3*time.Second, "configmaps", "", http.StatusConflict), nil, true},
		{"after the term, without an answer", event(3*time.Second, "configmaps", "", http.StatusGatewayTimeout), nil, true},
		{"past all proxies", direct, nil, true},
		{"after a renewal", event(2*time.Second, "configmaps", "", http.StatusOK),
			[]clustertest.AuditEvent{event(time.Second, "leases", held, http.StatusOK)}, false},
		{"after a renewal that failed", event(2*time.Second, "configmaps", "", http.StatusOK),
			[]clustertest.AuditEvent{event(time.Second, "leases", held, http.StatusInternalServerError)}, true},
		{"after a release", event(900*time.Millisecond, "configmaps", "", http.StatusOK),
			[]clustertest.AuditEvent{event(100*time.Millisecond, "leases", released, http.StatusOK)}, true},
		{"after a lease that is not told", event(time.Second, "configmaps", "", http.StatusOK),
			[]clustertest.AuditEvent{event(0, "leases", "", http.StatusOK)}, true},
	} {
		all := append(append(requests{lease}, test.after...), test.write)
		if broken := newTerms("first", time.Second).check(all); (len(broken) > 0) != test.late {
			t.Errorf("%s: %q", test.name, broken)
		}
	}
}

func TestStoredOutsideTerms(t *testing.T) {
	event := func(user, resource string, revision int, object string) clustertest.AuditEvent {
		var e clustertest.AuditEvent
		e.User.Username, e.Verb, e.ObjectRef.Resource, e.ResponseStatus.Code = user, "update", resource, http.StatusOK
		e.RequestObject = json.RawMessage(object)
		e.ResponseObject = fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, revision)
		return e
	}
	takes := func(user string, revision int) clustertest.AuditEvent {
		return event(user, "leases", revision, fmt.Sprintf(`{"spec":{"holderIdentity":%q}}`, user))
	}
	writes := func(user string, revision int) clustertest.AuditEvent { return event(user, "configmaps", revision, "") }
	refused := writes("first", 5)
	refused.ResponseStatus.Code = http.StatusConflict
	for name, test := range map[string]struct {
		all    requests
		broken int
	}{
		"one after the other":           {requests{takes("first", 1), writes("first", 2), takes("second", 3), writes("second", 4)}, 0},
		"logged in another order":       {requests{writes("first", 2), takes("second", 3), takes("first", 1)}, 0},
		"stored after the other leads":  {requests{takes("first", 1), takes("second", 3), writes("first", 4)}, 1},
		"refused after the other leads": {requests{takes("first", 1), takes("second", 3), refused}, 0},
		"before its term":               {requests{takes("first", 1), writes("second", 2), takes("second", 3)}, 1},
		"after a release":               {requests{takes("first", 1), event("first", "leases", 2, `{"spec":{"holderIdentity":""}}`), writes("first", 3)}, 1},
	} {
		if broken := storedOutsideTerms(test.all); len(broken) != test.broken {
			t.Errorf("%s: %q", name, broken)
		}
	}
}

// No write leaves the process outside its term, whatever happens to the process
// or to the way to the API server.
func TestInvariant2NoWriteOutsideTerm(t *testing.T) {
	pause := func(o *operator, _ *clustertest.Proxy) (heal func()) {
		o.signal(syscall.SIGSTOP)
		return func() { o.signal(syscall.SIGCONT) }
	}
	blackHole := func(o *operator, p *clustertest.Proxy) (heal func()) {
		p.BlackHole(o.t)
		return func() { p.Heal(o.t) }
	}
	leaseLost := func(o *operator, p *clustertest.Proxy) (heal func()) {
		rule := p.Answer(o.t, http.StatusInternalServerError, clustertest.Match{Resources: []string{"leases"}})
		return func() { rule.Remove(o.t) }
	}
	for _, test := range []struct {
		name string
		harm func(*operator, *clustertest.Proxy) (heal func())
		env  []string
	}{
		{"paused", pause, nil},
		{"black hole", blackHole, nil},
		{"lease requests fail", leaseLost, nil},
		{"slow stop", leaseLost, []string{slowStop + "=4s"}},
		{"paused, slow stop", pause, []string{slowStop + "=4s"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			audit := w.Audit(t)
			env := append([]string{chatter + "=chatter"}, test.env...)
			first, proxy := w.run("first", env, quickLease...)
			first.says("chatter has begun", 1)
			second, _ := w.run("second", env, quickLease...)
			second.says("standing by", 1)
			for round := range 2 {
				heal := test.harm(first, proxy)
				second.says("chatter has begun", 1)
				heal()
				// It is whole again when it knows who leads.
				first.until("it stands by", func() bool {
					s, ok := first.status()
					return ok && !s.Election.Leading
				})
				if code := second.stop(); code != 0 {
					t.Errorf("exit code %d", code)
				}
				first.says("chatter has begun", round+2)
				second, _ = w.run("second", env, quickLease...)
				second.says("standing by", 1)
			}
			if code := first.stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			second.stop()
			all := w.requests(audit, "first", "second")
			checkTerms(t, all, time.Second, "first", "second")
		})
	}
}

// Losing the lease ends the term and not the process: nothing leaks, no write
// leaves after its term, and leading again costs no request for an initial state.
func TestInvariant3LostLeaseKeepsProcess(t *testing.T) {
	quick := losing{losses: 100, args: brisk, renewDeadline: time.Second, pace: "10ms"}
	if seedtest.Soak() {
		quick.losses = 10_000
		if text := os.Getenv("SKEP_LOSSES"); text != "" {
			var err error
			if quick.losses, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("quick leases", func(t *testing.T) { quick.run(t) })
	if seedtest.Soak() {
		byDefault := losing{losses: 20, renewDeadline: 10 * time.Second, pace: "2ms"}
		t.Run("default flags", func(t *testing.T) { byDefault.run(t) })
	}
}

// brisk are flags of an operator that soon notices the loss of its lease, and
// soon looks whether it is free.
var brisk = slices.Concat(quickLease, []string{"--leader-election-retry-period=50ms"})

// losing is how often an operator loses its lease, and under which flags.
type losing struct {
	losses        int
	args          []string
	renewDeadline time.Duration
	pace          string // of a duty that writes all the time
}

// The heap is looked at so often over all losses. In the last four fifths it grows
// by no more than heapSlack, and by what the operator remembers of its last writes:
// a ring. In the long form that is full by then, and allows for nothing.
const (
	heapLooks = 20
	heapSlack = 1 << 20
	ringSize  = 4096
	ringBytes = 600 // per write
)

// heapLook is the live heap after so many losses and writes.
type heapLook struct{ losses, writes, heap int }

// beside is the heap without what writes are remembered with.
func (h heapLook) beside() int { return h.heap - ringBytes*min(h.writes, ringSize) }

func (l losing) run(t *testing.T) {
	v := l.start(t)
	goroutines := settledGoroutines(t, v.pprof)
	v.began = time.Now()
	heap := l.lose(v)
	took := time.Since(v.began)
	v.served("last")
	v.look()
	if n := v.o.log.Count("lost the lease"); n < l.losses {
		t.Errorf("%d losses, not %d", n, l.losses)
	}
	if v.fence.writes == 0 {
		t.Error("nothing was written: the test shows nothing")
	}
	l.checkHeap(t, heap)
	t.Logf("%d losses in %s, %d writes, the latest %s after its deadline; %d goroutines before", l.losses, took.Round(time.Second), v.fence.writes, v.fence.latest, goroutines)
	eventually(t, fmt.Sprintf("no more than %d goroutines", goroutines), func() bool { return goroutineCount(t, v.pprof) <= goroutines })
	if code := v.o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// start returns an operator that has led, lost the lease and led again: what the
// first time costs is no leak.
func (l losing) start(t *testing.T) *victim {
	w := newWorld(t)
	v := &victim{world: w, audit: w.Audit(t), pprof: clustertest.FreePort(t), fence: newTerms("loser", l.renewDeadline)}
	env := []string{chatter + "=chatter", chatterPace + "=" + l.pace, "GODEBUG=memprofilerate=0"} // its profile would take seconds
	v.o, _ = w.run("loser", env, slices.Concat(l.args, []string{"--operator-pprof", "--operator-pprof-port=" + strconv.Itoa(v.pprof)})...)
	v.says("caches synced, allocating pod CIDRs")
	w.addNodes("node", 20)
	w.settled()
	v.loses(func() {})
	v.says("chatter has begun")
	w.served("first")
	v.keepsTerms(w.requests(v.audit, "loser"))
	return v
}

// lose makes the victim lose its lease: one time in three on its way into a term,
// else in the midst of it. At times the lease stays away until the deadline of the
// term has passed, so that a late write would come; then what has to hold is looked at.
func (l losing) lose(v *victim) (heap []heapLook) {
	every := min(100, l.losses/5)
	for i := 1; i < l.losses; i++ {
		if i%every != 0 {
			v.loses(func() {})
			if i%3 != 0 {
				v.says("chatter has begun")
			}
			continue
		}
		v.loses(func() {
			over := time.Now().Add(l.renewDeadline + 2*slack)
			if len(heap) < i*heapLooks/l.losses {
				v.look()
				heap = append(heap, heapLook{i, v.fence.writes, liveHeap(v.t, v.pprof)})
				v.t.Logf("losses, writes and live heap: %v", heap[len(heap)-1])
			}
			time.Sleep(time.Until(over)) // the time is what is measured
		})
		v.says("caches synced, allocating pod CIDRs")
		v.served("again")
		v.deleteNodes("again")
		v.look()
	}
	return heap
}

// checkHeap compares the heap after the first fifth with the least of the last two looks: what
// is under way at one look is no leak.
func (l losing) checkHeap(t *testing.T, heap []heapLook) {
	t.Helper()
	late := slices.DeleteFunc(heap, func(h heapLook) bool { return h.losses < l.losses/5 })
	if l.losses >= 10_000 && late[0].writes < ringSize {
		t.Errorf("%d writes in the first fifth do not fill the ring of %d", late[0].writes, ringSize)
	}
	last := slices.MinFunc(late[len(late)-2:], func(a, b heapLook) int { return a.beside() - b.beside() })
	if grown := last.beside() - late[0].beside(); grown > heapSlack {
		t.Errorf("the live heap has grown by %d bytes between %d and %d losses", grown, late[0].losses, last.losses)
	}
}

// victim is an operator that others take the lease from.
type victim struct {
	*world
	o     *operator
	audit *clustertest.Audit
	pprof int // port
	fence *terms
	began time.Time // from when on there is no request for an initial state
	read  int       // of its log
}

// says waits until a text comes in the log, after the last that was waited for.
func (v *victim) says(text string) {
	v.t.Helper()
	v.o.until(fmt.Sprintf("it says %q", text), func() bool {
		at := strings.Index(v.o.log.After(v.read), text)
		if at >= 0 {
			v.read += at + len(text)
		}
		return at >= 0
	})
}

// loses has the lease stolen until the term has ended and something is done
// meanwhile, and returns when the operator leads again.
func (v *victim) loses(meanwhile func()) {
	v.t.Helper()
	v.steal("thief")
	v.says("lost the lease")
	v.says("stopped leading")
	meanwhile()
	if *v.lease().Spec.HolderIdentity == "thief" { // else it has taken the expired lease back
		v.steal("")
	}
	v.says("msg=leading")
}

// look checks what the operator has sent since the last look.
func (v *victim) look() {
	v.t.Helper()
	seen := v.requests(v.audit, "loser")
	states := seen.initialStates().which(func(e clustertest.AuditEvent) bool { // and not the end of an earlier watch
		return e.RequestReceivedTimestamp.After(v.began)
	})
	if len(states) > 0 {
		v.t.Errorf("leading again cost requests for the initial state:\n%s", states)
	}
	v.keepsTerms(seen)
}

// keepsTerms holds requests of the victim to its terms.
func (v *victim) keepsTerms(seen requests) {
	v.t.Helper()
	for _, late := range v.fence.check(seen) {
		v.t.Error(late)
	}
}

// steal makes another the holder of the lease; without a name it is released, by a
// leader that does not know what it wrote.
func (w *world) steal(holder string) {
	w.t.Helper()
	eventually(w.t, "the lease is stolen", func() bool {
		lease, now := w.lease(), metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
		lease.Spec.HolderIdentity = ptr.To(holder)
		lease.Spec.RenewTime, lease.Spec.AcquireTime = &now, &now
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		if holder == "" {
			release := fmt.Sprintf(`{"transitions":%d,"released":%q}`, *lease.Spec.LeaseTransitions, now.Format(metav1.RFC3339Micro))
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, "skep.dev/written", release)
		}
		_, err := w.core.CoordinationV1().Leases(w.namespace).Update(w.t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
}

// goroutineCount is how many there are, but for those that pass on Events: a module has three from its first Event on.
func goroutineCount(t *testing.T, port int) int {
	t.Helper()
	text := profile(t, port, "goroutine?debug=1")
	n := numberAfter(t, text, "goroutine profile: total ")
	_, stacks, _ := bytes.Cut(text, []byte("\n"))
	for alike := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(alike, []byte("client-go/tools/record.")) || bytes.Contains(alike, []byte("watch.(*Broadcaster)")) {
			n -= numberAfter(t, alike, "")
		}
	}
	return n
}

// settledGoroutines is the most of several counts: a request that is under way has
// goroutines of its own, and a watch that begins anew has none.
func settledGoroutines(t *testing.T, port int) int {
	t.Helper()
	most := 0
	for range 20 {
		most = max(most, goroutineCount(t, port))
		time.Sleep(50 * time.Millisecond) // between what is under way
	}
	return most
}

const heapAlloc = "\n# HeapAlloc = "

// liveHeap is what is left of the heap after forced collections: the least of
// several looks, for there may be something under way at each.
func liveHeap(t *testing.T, port int) int {
	t.Helper()
	least := profiled(t, port, "heap?gc=1&debug=1", heapAlloc)
	for range 5 {
		time.Sleep(100 * time.Millisecond) // between what is under way
		least = min(least, profiled(t, port, "heap?gc=1&debug=1", heapAlloc))
	}
	return least
}

// profiled is a number in a profile of the process that serves them at a port.
func profiled(t *testing.T, port int, name, before string) int {
	t.Helper()
	return numberAfter(t, profile(t, port, name), before)
}

func profile(t *testing.T, port int, name string) []byte {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://localhost:%d/debug/pprof/%s", port, name))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// numberAfter is the number after the first place of a text in another. Profiles are large: a regular expression
// takes a second for some.
func numberAfter(t *testing.T, text []byte, before string) int {
	t.Helper()
	_, after, _ := bytes.Cut(text, []byte(before))
	end := bytes.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	n, err := strconv.Atoi(string(after[:max(0, end)]))
	if err != nil {
		t.Fatalf("no number after %q in %.200s", before, text)
	}
	return n
}
