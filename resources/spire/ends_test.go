// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire/spiretest"
)

// SPIRE-12: S4 of the contract's mutual-auth.md. A server that ends connections in an orderly way costs a count for each, and no list, unless it has lost entries, or does not count.
func TestConnectionsThatEnd(t *testing.T) {
	for name, countsAll := range map[string]bool{"it counts what it lists": false, "it counts all": true} {
		t.Run(name, func(t *testing.T) {
			s := spiretest.Start(t, "spiffe.cilium")
			if countsAll {
				s.CountAll()
			}
			s.Put(spiretest.Entry{SPIFFEID: spiretest.ID{TrustDomain: "spiffe.cilium", Path: "/z"}, ParentID: spiretest.ID{TrustDomain: "spiffe.cilium", Path: "/other"}})
			r := newRig(t, s, "/a/1", "/a/2")
			r.CountInterval = time.Hour
			r.start()
			r.want("/a/1", "/a/2")
			for i := range 3 {
				s.EndConnections()
				r.want(fmt.Sprint("/a/3", i))
			}
			if countsAll {
				r.eventually("all are listed", func() bool { return s.Calls()["ListEntries"] > 1 })
				return
			}
			r.eventually("they are counted", func() bool { return s.Calls()["CountEntries"] > 1 })
			s.SetConnectionAge(20 * time.Millisecond)
			for i := range 50 {
				r.want(fmt.Sprint("/a/4", i))
			}
			if calls := s.Calls(); calls["ListEntries"] != 1 || strings.Contains(r.log.String(), "WARN") || r.degraded() != "" {
				t.Errorf("the calls are %v; %s", calls, r.degraded())
			}
			s.Wipe()
			s.SetConnectionAge(0)
			r.want("/a/5")
			r.eventually("what was lost is there again", func() bool { return s.Len() == 2+3+50+1 })
		})
	}
}

// SPIRE-12: S1 and S3 of the contract's mutual-auth.md. An entry that a call which was not answered has created does not end the counts.
func TestCountsGoOn(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	s.Hang("/a/3", true)
	r := newRig(t, s, "/a/1")
	r.CountInterval = 20 * time.Millisecond
	r.connection.pacer.patience.call = 500 * time.Millisecond
	r.connection.pacer.pace.entries = 2
	r.start()
	r.want("/a/1")
	r.paths.set("/a/2", true)
	r.paths.set("/a/3", true)
	r.Enqueue(k8s.Trigger{}, "/a/2", "/a/3")
	r.eventually("the second existed already", func() bool { return requestsWith(s, "/a/2") == 2 })
	s.Hang("/a/3", false)
	r.eventually("there is the third", func() bool { return r.has("/a/1", "/a/2", "/a/3") })
	r.eventually("it is healthy", func() bool { return r.degraded() == "" })
	s.Wipe()
	r.eventually("what was lost is there again", func() bool { return r.has("/a/1", "/a/2", "/a/3") })
}

// SPIRE-21: S6 of the contract's mutual-auth.md. A certificate that arrives begins an attempt, whatever is left of the pause after the last one.
func TestCertificateThatArrives(t *testing.T) {
	s := spiretest.Prepare(t, "spiffe.cilium")
	s.Agent.Knows()
	s.Agent.Start()
	r := newRig(t, s, "/a/1")
	r.pauseAfterFailures(time.Hour)
	r.start()
	r.eventually("it has failed", func() bool { return strings.Contains(r.degraded(), "no identity issued") })
	s.Agent.Knows("/ns/kube-system/sa/default")
	s.Agent.Knows(spiretest.OperatorPath)
	r.eventually("there is an entry", func() bool { return r.has("/a/1") })
	r.eventually("it is healthy", func() bool { return r.degraded() == "" })
}

// SPIRE-21: S7 and S6 of the contract's mutual-auth.md. Health says when the operator's own certificate has ended, and since when there is no other; the next one begins an attempt.
func TestCertificateThatEnds(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	r := newRig(t, s, "/a/1")
	r.pauseAfterFailures(time.Hour)
	r.start()
	r.want("/a/1")
	s.Agent.SetLifetime(time.Second)
	s.Agent.Rotate()
	r.eventually("it ends", func() bool { return r.connection.workload.ended(time.Now()) != nil })
	s.Agent.Stop()
	s.EndConnections()
	r.paths.set("/a/2", true)
	r.Enqueue(k8s.Trigger{}, "/a/2")
	svid, err := r.connection.workload.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	ended := "the operator's own certificate ended at " + svid.Certificates[0].NotAfter.UTC().Format(time.RFC3339)
	r.eventually("health has the reason", func() bool {
		return strings.Contains(r.degraded(), ended) && strings.Contains(r.degraded(), "the SPIRE agent at "+s.Agent.Socket+" has not answered with another since 2")
	})
	s.Agent.SetLifetime(time.Hour)
	s.Agent.Start()
	r.eventually("there is an entry", func() bool { return r.has("/a/2") })
	r.eventually("it is healthy", func() bool { return r.degraded() == "" })
}
