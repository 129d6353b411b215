// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest"
)

// A restart on a converged cluster makes no mutating call but those for the
// lease and the questions about permissions.
func TestInvariant1RestartMakesNoWrites(t *testing.T) {
	w := newWorld(t)
	o, _ := w.run("first", nil)
	o.leads()
	o.says("all nodes are known", 1)
	w.addNodes("node", 40)
	w.addNode("has", "10.200.0.0/24")
	w.addNode("foreign", "192.168.7.0/24")
	w.addNode("garbage", "not-a-cidr")
	w.addNode("twice", "10.200.0.0/24")
	w.settled()
	w.served("last-of-first")
	if code := o.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	audit := w.Audit(t)
	o, _ = w.run("second", nil)
	o.leads()
	o.says("all nodes are known", 1)
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

// slack is how late the server may look at a request that was sent in time.
const slack = 300 * time.Millisecond

// checkTerms holds every write of a user to the terms that the lease grants: from
// a successful write of the lease that names the user until the renew deadline
// after it, on the server's clock.
func checkTerms(t *testing.T, all requests, user string, renewDeadline time.Duration) {
	t.Helper()
	var until time.Time
	writes := 0
	for _, e := range all.which(func(e clustertest.AuditEvent) bool { return e.User.Username == user }) {
		switch {
		case onLease(e) && e.Mutates() && e.ResponseStatus.Code < 300:
			until = e.RequestReceivedTimestamp.Add(renewDeadline)
		case !onLease(e) && e.Mutates():
			writes++
			if e.ResponseStatus.Code == http.StatusGatewayTimeout {
				// It left in time and was held on the way, by a black hole that let
				// go of it when its client had gone: nothing was stored.
				continue
			}
			if late := e.RequestReceivedTimestamp.Sub(until); late > slack {
				t.Errorf("%s wrote %s after the end of its term: %s", user, late, requests{e})
			}
		}
	}
	if writes == 0 {
		t.Errorf("%s wrote nothing: the test shows nothing", user)
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
			checkTerms(t, all, "first", time.Second)
			checkTerms(t, all, "second", time.Second)
		})
	}
}

// Losing the lease ends the term and not the process: nothing leaks, and leading
// again costs no request for an initial state.
func TestInvariant3LostLeaseKeepsProcess(t *testing.T) {
	losses := 100
	if long := soak(); long {
		losses = 10_000
	}
	w := newWorld(t)
	pprof := freePort(t)
	o, _ := w.run("loser", nil, append(quickLease, "--operator-pprof", "--operator-pprof-port="+strconv.Itoa(pprof))...)
	o.leads()
	o.says("all nodes are known", 1)
	w.addNodes("node", 20)
	w.settled()
	steal := func() {
		w.steal("thief")
		o.until("it has noticed", func() bool { s, ok := o.status(); return ok && !s.Election.Leading })
		w.steal("")
		o.leads()
	}
	steal() // what the first time costs is no leak
	w.served("first")
	goroutines := goroutineCount(t, pprof)
	audit := w.Audit(t)
	known := o.log.count("all nodes are known")
	for i := range losses - 1 {
		steal()
		if i%25 == 0 {
			o.says("all nodes are known", known+1)
			known = o.log.count("all nodes are known")
			w.served(fmt.Sprint("after-", i))
		}
	}
	w.served("last")
	seen := w.requests(audit, "loser")
	if states := seen.initialStates(); len(states) > 0 {
		t.Errorf("leading again cost requests for the initial state:\n%s", states)
	}
	eventually(t, fmt.Sprintf("no more than %d goroutines", goroutines), func() bool { return goroutineCount(t, pprof) <= goroutines })
	if n := o.log.count("lost the lease"); n < losses {
		t.Errorf("%d losses, not %d", n, losses)
	}
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// steal makes somebody the holder of the lease.
func (w *world) steal(holder string) {
	w.t.Helper()
	eventually(w.t, "the lease is stolen", func() bool {
		lease := w.lease()
		lease.Spec.HolderIdentity = ptr.To(holder)
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		lease.Spec.LeaseTransitions = ptr.To(*lease.Spec.LeaseTransitions + 1)
		_, err := w.core.CoordinationV1().Leases(w.namespace).Update(w.t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
}

var goroutineTotal = regexp.MustCompile(`goroutine profile: total (\d+)`)

func goroutineCount(t *testing.T, port int) int {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://localhost:%d/debug/pprof/goroutine?debug=1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	match := goroutineTotal.FindSubmatch(text)
	if err != nil || match == nil {
		t.Fatalf("no goroutine profile: %v: %.200s", err, text)
	}
	n, _ := strconv.Atoi(string(match[1]))
	return n
}
