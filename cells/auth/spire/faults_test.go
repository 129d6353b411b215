// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// SPIRE-10; SPIRE-E6: the agent's socket appears later, and with it the operator's certificate.
func TestAgentComesLater(t *testing.T) {
	s := spiretest.Prepare(t, domain)
	d := newDuty(t, s)
	d.create("300")
	d.lead()
	d.eventually("health reports the agent", func() bool {
		return strings.Contains(d.degraded(), "unable to connect to SPIRE server "+s.Address()+": the SPIRE agent at "+s.Agent.Socket)
	})
	s.Agent.Knows()
	s.Agent.Start()
	d.eventually("health reports the missing registration", func() bool { return strings.Contains(d.degraded(), "no identity issued") })
	s.Agent.Knows("/ns/kube-system/sa/default")
	d.eventually("health reports another registration", func() bool {
		return strings.Contains(d.degraded(), "knows this pod as spiffe://spiffe.cilium/ns/kube-system/sa/default, and not as spiffe://spiffe.cilium/cilium-operator")
	})
	s.Agent.Knows("/ns/kube-system/sa/default", spiretest.OperatorPath)
	d.wantEntries("300")
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
	if n := d.log.Count("level=WARN"); n != 1 {
		t.Errorf("%d warnings of one outage", n)
	}
}

// SPIRE-11: certificates and authorities that rotate are followed, without a call that is lost.
func TestRotation(t *testing.T) {
	s := spiretest.Start(t, domain)
	d := newDuty(t, s)
	d.create("300")
	d.lead()
	d.wantEntries("300")
	s.ReplaceAuthority()
	d.create("301")
	d.wantEntries("300", "301")
	if serials := s.Serials(); len(serials) != 2 {
		t.Errorf("clients had the certificates %v", serials)
	}
	s.Agent.Stop() // the certificate is valid still
	d.create("302")
	d.wantEntries("300", "301", "302")
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
}

// SPIRE-11: a server of another trust domain is no SPIRE server of ours.
func TestOtherTrustDomain(t *testing.T) {
	other := spiretest.Start(t, "other.domain")
	d := newDuty(t, spiretest.Start(t, domain))
	d.config.MeshAuthSPIREServerAddress = other.Address()
	d.create("300")
	d.lead()
	d.eventually("health reports it", func() bool { return strings.Contains(d.degraded(), "authentication handshake failed") })
	if other.Len() != 0 || len(other.Calls()) != 0 {
		t.Errorf("it was called: %v", other.Calls())
	}
}

// SPIRE-17: an outage costs a list, one line and no queue: what changed meanwhile follows from the comparison.
func TestServerAway(t *testing.T) {
	s := spiretest.Start(t, domain)
	d := newDuty(t, s)
	d.createRange(300, 400)
	d.lead()
	d.eventually("all have entries", func() bool { return s.Len() == 100 })
	address := s.Address()
	s.Stop()
	d.createRange(400, 700)
	for _, name := range []string{"300", "301"} {
		d.delete(name)
	}
	d.eventually("health reports it", func() bool {
		return strings.Contains(d.degraded(), "reading from spire") || strings.Contains(d.degraded(), "at spire")
	})
	s.Wipe()
	s.Listen(address)
	d.eventually("all have entries again", func() bool { return s.Len() == 398 })
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
	if n := d.log.Count("level=WARN"); n != 1 {
		t.Errorf("%d warnings of one outage", n)
	}
}

// SPIRE-12: entries that are lost while nothing fails are created again at the interval.
func TestWipe(t *testing.T) {
	s := spiretest.Start(t, domain)
	d := newDuty(t, s)
	d.interval = 300 * time.Millisecond
	d.create("300", "301")
	d.lead()
	d.wantEntries("300", "301")
	s.Wipe()
	d.wantEntries("300", "301")
	s.Put(s.Own(302))
	d.wantEntries("300", "301")
}

// SPIRE-18: an operator that is no administrator of the server is reported once, whatever the number of identities.
func TestPermissionDenied(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.SetAdmin(false)
	d := newDuty(t, s)
	d.createRange(300, 400)
	d.lead()
	d.eventually("health reports it", func() bool {
		return strings.Contains(d.degraded(), "PermissionDenied") && strings.Contains(d.degraded(), "admin_ids")
	})
	d.createRange(400, 500)
	d.eventually("it is tried again", func() bool { return s.Calls()["ListEntries"] > 3 })
	s.SetAdmin(true)
	d.eventually("all have entries", func() bool { return s.Len() == 200 })
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
	if n := d.log.Count("level=WARN"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// SPIRE-17: a call that fails leaves nothing undone, whichever it is.
func TestCallsThatFail(t *testing.T) {
	for _, method := range []string{"ListEntries", "BatchCreateEntry", "BatchDeleteEntry"} {
		t.Run(method, func(t *testing.T) {
			s := spiretest.Start(t, domain)
			d := newDuty(t, s)
			d.create("300")
			d.lead()
			d.wantEntries("300")
			s.Fail(method, codes.Internal)
			if method == "ListEntries" {
				d.restart()
			}
			d.delete("300")
			d.create("301")
			d.eventually("health reports it", func() bool { return strings.Contains(d.degraded(), "Internal") })
			s.Fail(method, codes.OK)
			d.wantEntries("301")
			d.eventually("it is healthy", func() bool { return d.degraded() == "" })
		})
	}
}

// SPIRE-17: a server that limits the rate is left alone.
func TestRateLimit(t *testing.T) {
	s := spiretest.Start(t, domain)
	s.Fail("ListEntries", codes.ResourceExhausted)
	d := newDuty(t, s)
	d.lead()
	d.eventually("it is known", func() bool { return strings.Contains(d.degraded(), "the server asks for a pause of 30s") })
	if n := s.Calls()["ListEntries"]; n != 1 {
		t.Errorf("%d calls", n)
	}
}

// SPIRE-16: the end of a term ends all waits at once.
func TestStop(t *testing.T) {
	for name, prepare := range map[string]func(*spiretest.Server){
		"no agent":    func(*spiretest.Server) {},
		"no identity": func(s *spiretest.Server) { s.Agent.Knows(); s.Agent.Start() },
		"no server":   func(s *spiretest.Server) { s.Agent.Start(); s.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			s := spiretest.Prepare(t, domain)
			prepare(s)
			d := newDuty(t, s)
			d.create("300")
			d.lead()
			d.eventually("it waits", func() bool { return d.degraded() != "" })
			meter := waittest.StartMeter()
			defer meter.Stop()
			d.end()
			if took := meter.Elapsed(); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
