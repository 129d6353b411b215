// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetGauge().GetValue() + d.GetCounter().GetValue()
}

// NUNM-6: pods whose workload goes on without them come first, and then older ones.
func TestOrder(t *testing.T) {
	now := time.Now()
	var all []*pod
	add := func(name, owner string, age time.Duration, ready bool) {
		p := &pod{}
		p.Name, p.Status.StartTime, p.Status.Ready = name, slim.MakeTime(now.Add(-age)), slim.Ready(ready)
		if owner != "" {
			p.Controller = slim.MakeOwner(slim.OwnerReference{Name: owner})
		}
		all = append(all, p)
	}
	add("lonely", "", 9*time.Hour, true)
	add("lonely-too", "", 9*time.Hour, true)
	add("last-ready", "a", 8*time.Hour, true)
	add("not-ready", "a", 7*time.Hour, false)
	add("one-of-two", "b", 2*time.Hour, true)
	add("two-of-two", "b", 3*time.Hour, true)
	s := classify(slices.Values(all), facts{now: now, managed: func(*pod) bool { return false }, unserved: func(*pod) string { return "" }, restarts: newRestarts()})
	var names []string
	for _, p := range slices.Concat(s.due...) {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "not-ready two-of-two one-of-two lonely lonely-too last-ready" {
		t.Errorf("the order is %s", got)
	}
}

// NUNM-3, NUNM-6; number 7.3 of the contract's tenants.md: one pod of each namespace in a pass, and that of the system first, however many and
// old those of another are.
func TestNamespacesDoNotWaitForEachOther(t *testing.T) {
	now := time.Now()
	var all []*pod
	add := func(namespace, name string, age time.Duration) {
		p := &pod{}
		p.Namespace, p.Name, p.Status.StartTime = slim.MakeString(namespace), name, slim.MakeTime(now.Add(-age))
		all = append(all, p)
	}
	for i := range 20 {
		add("bb", fmt.Sprintf("dns-%02d", i), 9*time.Hour)
	}
	add("aa", "dns", 2*time.Hour)
	add("kube-system", "coredns-1", time.Hour)
	add("kube-system", "coredns-2", time.Minute)
	s := classify(slices.Values(all), facts{now: now, managed: func(*pod) bool { return false }, unserved: func(*pod) string { return "" }, restarts: newRestarts()})
	var first []string
	for _, of := range s.due {
		first = append(first, of[0].Key().String())
	}
	if got := strings.Join(first, " "); got != "kube-system/coredns-1 bb/dns-00 aa/dns" || s.unmanaged != 23 {
		t.Errorf("the pass restarts %s", got)
	}
	all[0].Status.StartTime = slim.MakeTime(now.Add(-time.Minute))
	s = classify(slices.Values(all), facts{now: now, managed: func(*pod) bool { return false }, unserved: func(*pod) string { return "" }, restarts: newRestarts(), oneAtATime: true})
	if len(s.due) != 1 || len(s.due[0]) != 23 || s.due[0][0].Key().String() != "bb/dns-01" || s.due[0][20].Key().String() != "kube-system/coredns-1" {
		t.Errorf("with --unmanaged-pods-one-at-a-time the pass restarts one of %d, at first %s", len(s.due), s.due[0][0].Key())
	}
}

// NUNM-7: restarts are forgotten after ten minutes.
func TestRestartsExpire(t *testing.T) {
	r, now := newRestarts(), time.Now()
	for i, owner := range []string{"", "a"} {
		p := &pod{}
		p.Name = string(rune('a' + i))
		if owner != "" {
			p.Controller = slim.MakeOwner(slim.OwnerReference{Name: owner})
		}
		r.add(p, now)
	}
	if r.expire(now.Add(memory - 1)); len(r.pods) != 2 || len(r.workloads) != 1 {
		t.Errorf("too early: %v", r)
	}
	if r.expire(now.Add(memory)); len(r.pods)+len(r.workloads) != 0 {
		t.Errorf("kept: %v", r)
	}
}

// Number 20 of the contract's nodes.md, NUNM-13 and the options: seconds and durations, and selectors.
func TestConfig(t *testing.T) {
	for text, want := range map[string]time.Duration{"15": 15 * time.Second, "0": 0, "15s": 15 * time.Second, "1m": time.Minute, "0s": 0} {
		var s seconds
		if err := s.UnmarshalText([]byte(text)); err != nil || time.Duration(s) != want {
			t.Errorf("%s is %s, %v", text, time.Duration(s), err)
		}
	}
	for _, text := range []string{"", "soon", "1.5", "99999999999"} {
		if err := new(seconds).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is valid", text)
		}
	}
	for _, test := range []struct {
		config Config
		wrong  string
	}{
		{Config{UnmanagedPodWatcherInterval: seconds(time.Second)}, ""},
		{Config{}, ""},
		{Config{UnmanagedPodWatcherInterval: 1}, "--" + intervalFlag},
		{Config{UnmanagedPodWatcherInterval: seconds(-time.Second)}, "--" + intervalFlag},
		{Config{PodRestartSelector: "a in (b"}, "--" + selectorFlag},
		{Config{PodRestartSelector: "a in (b, c),!d"}, ""},
	} {
		err := cell.ValidateConfig(test.config)
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%+v: %v", test.config, err)
		}
	}
	etcd := cluster.Config{KVStore: "etcd", DisableEndpointCRD: true}
	for _, on := range []bool{
		enabled(Config{UnmanagedPodWatcherInterval: 1}, cluster.Config{DisableEndpointCRD: true}), // there is no other place
		!enabled(Config{UnmanagedPodWatcherInterval: 1}, etcd), !enabled(Config{}, cluster.Config{}),
	} {
		if !on {
			t.Error("it is enabled where it should not be, or the other way round")
		}
	}
}

// Numbers 21 and 22 of the contract's nodes.md; NUNM-1: where agents make no CiliumEndpoints, which pods are unmanaged is not known.
func TestOffWithoutEndpoints(t *testing.T) {
	noPolicies := func(c *cluster.Config) {
		c.EnablePolicy, c.IdentityAllocationMode = "never", "crd"
		c.EnableK8sNetworkPolicy, c.EnableCiliumNetworkPolicy, c.EnableCiliumClusterwideNetworkPolicy = false, false, false
	}
	slices := func(c *cluster.Config) { c.EnableCiliumEndpointSlice = true }
	for name, test := range map[string]struct {
		change func(*cluster.Config)
		on     [4]bool // in each release
	}{
		"21, no policies": {noPolicies, [4]bool{true, false, false, false}},
		"policies":        {func(*cluster.Config) {}, [4]bool{true, true, true, true}},
		"22, slices":      {slices, [4]bool{true, true, true, false}},
	} {
		for i, r := range release.All() {
			shared := cluster.DefaultConfig
			shared.Release, shared.DisableEndpointCRD = r, true
			test.change(&shared)
			if got := enabled(Config{UnmanagedPodWatcherInterval: seconds(time.Second)}, shared); got != test.on[i] {
				t.Errorf("%s, %s: pods are restarted: %t", name, r, got)
			}
		}
	}
}
