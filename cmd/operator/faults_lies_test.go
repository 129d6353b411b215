// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Invariants 1, 4, 5 and 6 under answers that lie, and under webhooks that reject, hang and
// rewrite what the operator writes, over all duties and all resources: when that is over, all
// is as it should be, nothing was given twice, nothing was deleted that is needed, nothing is
// written any more, also after a restart, and health says that all is well. A resource that
// the operator may write and did not write meanwhile fails the test: its duty is to bring
// its churn. SKEP_SEED repeats a run, SKEP_SPOILT restricts the answers to some kinds.
//
// In the long form both harms also come alone, for longer, and slices are made in all ways.
func TestInvariants1456UnderLies(t *testing.T) {
	seed := seedtest.Seed(t)
	if !seedtest.Soak() {
		way := gatherings[seed%uint64(len(gatherings))]
		t.Logf("slices of %s", way.name)
		newTurmoil(t, seed, way, lying).endure(540)
		return
	}
	for _, harm := range []harm{spoiling, admitting, lying} {
		for _, way := range gatherings {
			t.Run(harm.name+", "+way.name, func(t *testing.T) { newTurmoil(t, seed, way, harm).endure(manyActs) })
		}
	}
}

// liesCalmWithin is how long the operator may take until all is well after answers that
// lie: what has failed in a row is tried again after a minute at most. In the long form it was
// told to come back in an hour, which is to become minutes.
var liesCalmWithin = map[bool]time.Duration{false: 90 * time.Second, true: 6 * time.Minute}[seedtest.Soak()]

// mostTwins bounds the identities of one label set while answers to creates lie.
const mostTwins = 5

var (
	spoiling  = harm{name: "spoilt answers", begin: (*turmoil).spoil, calms: liesCalmWithin, twins: mostTwins, restarts: true}
	admitting = harm{name: "webhooks", begin: (*turmoil).admit, calms: liesCalmWithin, twins: mostTwins, restarts: true}
	lying     = harm{name: "spoilt answers and webhooks", calms: liesCalmWithin, twins: mostTwins, restarts: true, begin: func(f *turmoil) faults {
		spoilt, admitted := f.spoil(), f.admit()
		maps.Copy(spoilt.hits, admitted.hits)
		return faults{
			hits:    spoilt.hits,
			missing: func() error { return errors.Join(spoilt.missing(), admitted.missing()) },
			worst:   spoilt.worst,
			end:     func() { spoilt.end(); admitted.end() },
		}
	}}
)

// What is spoilt of reads and writes, most of the time and in the end. What happens in the
// end is not checked again.
const (
	writesSpoilt, readsSpoilt           = 0.1, 0.15
	writesSpoiltAtLast, readsSpoiltLast = 0.5, 0.3
)

// spoil makes some answers lie, in all ways that there are.
func (f *turmoil) spoil() faults {
	f.t.Helper()
	first, told := f.spoilSome("", writesSpoilt, readsSpoilt), &spoiltWrites{proxy: f.proxy}
	hits := maps.Clone(first)
	f.cutWatches(hits) // so that there are lists to lie about
	f.t.Cleanup(func() {
		if f.t.Failed() {
			f.t.Logf("the last spoilt answers to writes:\n%s", told)
		}
	})
	return faults{
		hits:    hits,
		missing: func() error { told.read(f.t); return allWays(f.t, first) },
		worst: func() func() error {
			last := f.spoilSome(" at last", writesSpoiltAtLast, readsSpoiltLast)
			maps.Copy(hits, last)
			return func() error { told.read(f.t); return allWays(f.t, last) }
		},
		end: func() { f.proxy.Heal(f.t) },
	}
}

// spoilSome spoils some answers to writes and to reads.
func (f *turmoil) spoilSome(when string, writes, reads float64) map[string]fault {
	f.t.Helper()
	hits := map[string]fault{}
	spoil := func(what string, probability float64, verbs ...string) {
		what += when
		hits[what] = f.proxy.Rule(f.t, clustertest.Rule{
			ID: what, Match: clustertest.Match{Verbs: verbs}, Probability: probability, Spoil: &clustertest.Spoil{Answers: lies()},
		})
	}
	spoil("spoilt answers to writes", writes, "create", "update", "patch", "delete", "deletecollection")
	spoil("spoilt answers to reads", reads, "get", "list", "watch")
	return hits
}

// lies are the kinds of answers that SKEP_SPOILT names, with commas between, to find out
// which of them does harm; else all. The short form never asks for a pause of an hour: the
// operator may need minutes after that.
func lies() (answers []control.SpoiltAnswer) {
	for kind := range strings.SplitSeq(os.Getenv("SKEP_SPOILT"), ",") {
		if kind != "" {
			answers = append(answers, control.SpoiltAnswer(kind))
		}
	}
	if len(answers) > 0 {
		return answers
	}
	return slices.DeleteFunc(control.SpoiltAnswers(), func(a control.SpoiltAnswer) bool { return a == control.SpoilThrottledHour && !seedtest.Soak() })
}

// spoiltWrites are the last writes whose answers lied.
type spoiltWrites struct {
	proxy *clustertest.Proxy
	after int64
	lines []string
}

func (s *spoiltWrites) read(t *testing.T) {
	t.Helper()
	for _, r := range s.proxy.Requests(t, s.after) {
		s.after = r.Seq
		if r.Spoilt != "" && r.Mutates() {
			s.lines = append(s.lines, fmt.Sprintf("%s %s %s %s/%s: %s", r.Received.UTC().Format(time.TimeOnly), r.Verb, r.Resource, r.Namespace, r.Name, r.Spoilt))
		}
	}
	s.lines = s.lines[max(0, len(s.lines)-200):]
}

func (s *spoiltWrites) String() string { return strings.Join(s.lines, "\n") }

// allWays says which answers have not come in all ways: each comes instead of the server's
// answer, and after it did its work.
func allWays(t *testing.T, hits map[string]fault) error {
	t.Helper()
	all := 2 * len(lies())
	for what, rule := range hits {
		if n := rule.Hits(t); n < all {
			return fmt.Errorf("%s: %d of %d ways have come", what, n, all)
		}
	}
	return nil
}

// What webhooks add to objects and take from labels, so that they can be told.
const (
	addedLabel   = "skep.dev/added-by-webhook"
	addedToSet   = "k8s:skep.dev/added-by-webhook"
	droppedOfSet = "k8s:io.cilium.k8s.policy.cluster"
)

// admit makes webhooks reject, hold and rewrite what the operator writes.
func (f *turmoil) admit() faults {
	f.t.Helper()
	match := clustertest.AdmissionMatch{Users: []string{"faulty"}}
	webhooks := map[string]clustertest.Admission{
		"rejects":       {Every: 11, Reject: &clustertest.Reject{Codes: []int{400, 401, 403, 404, 405, 409, 410, 413, 422, 429, 500, 503, 504}}},
		"hangs":         {Every: 61, Hang: &clustertest.Hang{For: -1}},
		"hangs, open":   {Every: 67, Hang: &clustertest.Hang{For: -1, FailOpen: true}},
		"adds a label":  {Every: 3, Set: map[string]any{"/metadata/labels/" + escaped(addedLabel): "yes"}},
		"drops a field": {Every: 4, Drop: []string{"/spec/ipam/podCIDRs", "/status/ipam", "/security-labels/" + escaped(droppedOfSet), "/endpoints/0/networking", "/metadata/annotations"}},
		"drops a part":  {Every: 19, Drop: []string{"/spec", "/status"}},
		"rewrites":      {Every: 7, Set: map[string]any{"/status/ipam/operator-status/error": "rewritten by a webhook"}},
		"adds to a set": {Every: 5, Set: map[string]any{"/security-labels/" + escaped(addedToSet): "yes"}},
	}
	only := map[string][]string{
		"rewrites": {"ciliumnodes/status"}, "adds to a set": {"ciliumidentities"},
		// A CRD without a spec is refused, and a lease without one has no holder.
		"drops a part": {"ciliumnodes", "ciliumnodes/status", "ciliumidentities", "ciliumendpointslices", "ciliumendpoints", "leases"},
	}
	audit := f.Audit(f.t)
	hits := map[string]fault{}
	var all []*clustertest.ActiveAdmission
	for _, what := range slices.Sorted(maps.Keys(webhooks)) {
		rule := webhooks[what]
		rule.Match = match
		rule.Match.Resources = only[what]
		if rule.Hang == nil && rule.Reject == nil { // there is nothing to rewrite in a delete
			rule.Match.Operations = []string{"CREATE", "UPDATE"}
		}
		active := f.Admit(f.t, rule)
		hits["a webhook that "+what] = active
		all = append(all, active)
	}
	may, wrote := f.mayWrite(), map[string]bool{}
	return faults{
		hits: hits,
		end: func() {
			for _, webhook := range all {
				webhook.Remove(f.t)
			}
		},
		missing: func() error {
			for _, e := range f.requests(audit, "faulty") {
				if e.Mutates() {
					wrote[e.ObjectRef.Resource] = true
				}
			}
			for resource := range may {
				if !wrote[resource] {
					return fmt.Errorf("nothing was written of %s, which the role allows: give its duty some churn (dutiesUnderFaults)", resource)
				}
			}
			return nil
		},
	}
}

// notWritten are resources that the operator may write and does not: Events are counted elsewhere, Endpoints are written where the
// role allows no EndpointSlices, cells of these tests write ConfigMaps, only newer definitions of two have a status, and CIDR groups are for
// agents of 1.20, while no release is known of those here.
var notWritten = []string{"events", "endpoints", "configmaps", "ciliumbgpclusterconfigs", "ciliumbgppeerconfigs", "ciliumcidrgroups"}

// mayWrite are the resources that the operator asks to be allowed to write, but for notWritten.
func (f *turmoil) mayWrite() map[string]bool {
	f.t.Helper()
	may := map[string]bool{}
	for _, rule := range f.leastRole("faulty", f.args()...).Rules {
		if !slices.ContainsFunc(rule.Verbs, func(v string) bool { return slices.Contains([]string{"create", "update", "patch", "delete"}, v) }) {
			continue
		}
		for _, resource := range rule.Resources {
			if resource, _, _ = strings.Cut(resource, "/"); !slices.Contains(notWritten, resource) {
				may[resource] = true
			}
		}
	}
	return may
}

// tampered reports whether a webhook has changed the labels of an identity: it stands for
// no labels of a pod.
func tampered(identity *unstructured.Unstructured) bool {
	set, _, _ := unstructured.NestedStringMap(identity.Object, "security-labels")
	return len(set) > 0 && (set[addedToSet] != "" || set[droppedOfSet] == "")
}

// restartsSilently checks that an operator which starts anew writes nothing but for what
// is new.
func (f *turmoil) restartsSilently() {
	f.t.Helper()
	f.calmed("a new node") // of which its own duty alone was waited for
	f.stop()
	audit := f.Audit(f.t)
	f.o = f.operator("restarted")
	f.o.leads()
	f.calmed("a restart")
	name := f.serveNewNode()
	others := f.requests(audit, "restarted").writes().which(func(e clustertest.AuditEvent) bool { return e.ObjectRef.Name != name })
	if len(others) > 0 {
		f.t.Errorf("a restart wrote:\n%s", others)
	}
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// escaped is a key in a JSON pointer.
func escaped(key string) string { return escape.Replace(key) }
