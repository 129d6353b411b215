// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
)

var _ cloudipam.StaticAddresser = (*provider)(nil)

// wantsStatic has a node want an address with tags.
func wantsStatic(s *v2.CiliumNodeSpec) {
	s.IPAM.StaticIPTags = map[string]string{"team": "a", "use": "egress"}
}

var staticTags = map[string]string{"team": "a", "use": "egress", "more": "tags"}

// Number 36 of the contract's ipam-aws-eni.md; AWS-33: the first elastic address with all tags that is free is associated with the first
// interface. If there is none, users see why.
func TestStaticIP(t *testing.T) {
	c := region("m5.large", "i-1", "i-2")
	list := c.Interfaces()
	c.AllocateAddress("eipalloc-1", "198.51.100.1", staticTags)
	c.AllocateAddress("eipalloc-2", "198.51.100.2", map[string]string{"team": "a"})
	c.AllocateAddress("eipalloc-4", "198.51.100.4", staticTags)
	c.AllocateAddress("eipalloc-3", "198.51.100.3", staticTags)
	if err := c.AssociateAddress("eipalloc-1", list[1].ID); err != nil {
		t.Fatal(err)
	}
	s := newSubject(t, Config{}, c)
	n := nodeOf("i-1", wantsStatic)
	if ip, err := s.AssignStaticIP(s.ctx(), n, s.one()); ip != "198.51.100.3" || err != nil {
		t.Fatalf("%s, %v", ip, err)
	}
	made := s.calls.of("AssociateAddress")
	if len(made) != 1 || made[0]["AllocationId"] != "eipalloc-3" || made[0]["NetworkInterfaceId"] != list[0].ID || made[0]["AllowReassociation"] != "false" {
		t.Errorf("%v", made)
	}
	if got := s.StaticIP(n, s.one()); got != "198.51.100.3" {
		t.Errorf("the interface has %s", got)
	}
	var none *cloudipam.NodeError
	for _, tags := range []map[string]string{{"team": "b"}, {"team": "a", "use": "x"}} {
		c := region("m5.large", "i-1")
		s := newSubject(t, Config{}, c)
		_, err := s.AssignStaticIP(s.ctx(), nodeOf("i-1", func(spec *v2.CiliumNodeSpec) { spec.IPAM.StaticIPTags = tags }), s.one())
		if want := fmt.Sprintf("no unassociated EIPs found for tags %v", tags); !errors.As(err, &none) || none.Text != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Numbers 37, 38 and 42 of the contract's ipam-aws-eni.md; AWS-33: a public address that the first interface has already is the static one,
// also if pods do not use that interface. It is in the status. An association without an address is none.
func TestStaticIPThatIsThere(t *testing.T) {
	one := 1
	for name, test := range map[string]struct {
		public string
		edit   func(*v2.CiliumNodeSpec)
	}{
		"37":                     {"198.51.100.4", wantsStatic},
		"38: it is excluded":     {"198.51.100.4", func(s *v2.CiliumNodeSpec) { wantsStatic(s); s.ENI.FirstInterfaceIndex = &one }},
		"42: that of a carrier":  {"", wantsStatic},
		"42: what is no address": {"none", wantsStatic},
	} {
		t.Run(name, func(t *testing.T) {
			c := region("m5.large", "i-1")
			c.AllocateAddress("eipalloc-1", "198.51.100.9", staticTags)
			first := c.Interfaces()[0]
			c.Associate(first.Primary, test.public)
			s, n := newSubject(t, Config{}, c), nodeOf("i-1", test.edit)
			i := s.read().Instances["i-1"]
			want := test.public
			if want == "none" {
				want = ""
			}
			var status v2.CiliumNodeStatus
			if s.SetStatus(n, i, &status); status.ENI.ENIs[first.ID].PublicIP != want || s.StaticIP(n, i) != want {
				t.Errorf("%+v, %s, want %s", status.ENI.ENIs[first.ID], s.StaticIP(n, i), want)
			}
			ip, err := s.AssignStaticIP(s.ctx(), n, i)
			calls := len(s.calls.of("DescribeAddresses")) + len(s.calls.of("AssociateAddress"))
			if want != "" && (ip != want || err != nil || calls != 0) {
				t.Errorf("%s, %v, %d calls", ip, err, calls)
			}
			if want == "" && (ip != "198.51.100.9" || err != nil) {
				t.Errorf("%s, %v", ip, err)
			}
		})
	}
}

// AWS-33: nodes that want an address at once get different ones, each with one call. A lost answer is taken over by the next attempt.
func TestStaticIPsAtOnce(t *testing.T) {
	const count = 5
	var ids []string
	for n := range count {
		ids = append(ids, fmt.Sprintf("i-%d", n))
	}
	c := region("m5.large", ids...)
	for n := range count {
		c.AllocateAddress(fmt.Sprintf("eipalloc-%d", n), fmt.Sprintf("198.51.100.%d", n), staticTags)
	}
	s := newSubject(t, Config{}, c)
	instances := s.read().Instances
	var all sync.WaitGroup
	got := make([]string, count)
	for n, id := range ids {
		all.Go(func() {
			var err error
			if got[n], err = s.AssignStaticIP(s.ctx(), nodeOf(id, wantsStatic), instances[id]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	slices.Sort(got)
	if n := len(s.calls.of("AssociateAddress")); len(slices.Compact(got)) != count || n != count {
		t.Errorf("%v with %d calls", got, n)
	}
}

// AWS-33: the answer is lost, and the address is there: the next attempt has it, whether reads show it or not. Another program may be
// faster.
func TestStaticIPOfAnEarlierAttempt(t *testing.T) {
	c := region("m5.large", "i-1", "i-2")
	var lost atomic.Bool
	lost.Store(true)
	c.Fault = func(operation string, _ map[string]string) (f ec2test.Fault) {
		f.Lose = operation == "AssociateAddress" && lost.Load()
		return f
	}
	c.AllocateAddress("eipalloc-1", "198.51.100.1", staticTags)
	c.AllocateAddress("eipalloc-2", "198.51.100.2", staticTags)
	s := newSubject(t, Config{}, c)
	n, before := nodeOf("i-1", wantsStatic), s.read().Instances["i-1"]
	if ip, err := s.AssignStaticIP(s.ctx(), n, before); err == nil {
		t.Fatalf("%s, and the answer was lost", ip)
	}
	lost.Store(false)
	if ip, err := s.AssignStaticIP(s.ctx(), n, before); ip != "198.51.100.1" || err != nil {
		t.Errorf("%s, %v", ip, err)
	}
	if ip, err := s.AssignStaticIP(s.ctx(), n, s.one()); ip != "198.51.100.1" || err != nil {
		t.Errorf("%s, %v", ip, err)
	}

	c = region("m5.large", "i-1", "i-2")
	c.AllocateAddress("eipalloc-1", "198.51.100.1", staticTags)
	c.AllocateAddress("eipalloc-2", "198.51.100.2", staticTags)
	s = newSubject(t, Config{}, c)
	stale, err := s.session.elasticAddresses(t.Context(), staticTags)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AssociateAddress("eipalloc-1", c.Interfaces()[1].ID); err != nil {
		t.Fatal(err)
	}
	if ip, err := s.associate(s.ctx(), n, firstOf(s.one()), freeAddresses(stale)); ip != "198.51.100.2" || err != nil {
		t.Errorf("%s, %v: another program has the first one", ip, err)
	}
}

// AWS-1: a static IP is given by the leader alone, and not in a plan. Errors say what to do.
func TestStaticIPIsGuarded(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*outside.Scope)
		want error
	}{
		"behind the fence": {func(s *outside.Scope) { s.Fence.Close() }, leading.ErrFenced},
		"in a plan":        {func(s *outside.Scope) { s.Plan = dryrun.New(time.Minute) }, outside.ErrPlanned},
	} {
		c := region("m5.large", "i-1")
		c.AllocateAddress("eipalloc-1", "198.51.100.1", staticTags)
		s := newSubject(t, Config{}, c)
		i := s.read().Instances["i-1"]
		scope := scopeOf(leading.Unfenced())
		t.Cleanup(scope.Fence.Close)
		test.edit(&scope)
		p := providerOf(t, Config{}, outside.New(scope, "ec2", outside.Limits{QPS: 1e6, Burst: 1e6}))
		if _, err := p.AssignStaticIP(s.ctx(), nodeOf("i-1", wantsStatic), i); !errors.Is(err, test.want) || c.Changes() != 0 {
			t.Errorf("%s: %v, want %v; %d changes", name, err, test.want, c.Changes())
		}
	}
	c := region("m5.large", "i-1")
	c.Fault = ec2test.Deny("DescribeAddresses")
	s := newSubject(t, Config{}, c)
	for want, edit := range map[string]func(*v2.CiliumNodeSpec){
		"EC2 denies a change of addresses":  wantsStatic,
		"spec.ipam.static-ip-tags is empty": nil,
	} {
		if _, err := s.AssignStaticIP(s.ctx(), nodeOf("i-1", edit), s.one()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	bare := &cloudipam.Instance{ID: "i-1"}
	if _, err := s.AssignStaticIP(s.ctx(), nodeOf("i-1", wantsStatic), bare); err == nil || !strings.Contains(err.Error(), "no interface number 0") || s.StaticIP(nil, bare) != "" {
		t.Error(err)
	}
}
