// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"bytes"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skep-operator/skep/cells/ipam/azure/armtest"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// otherSubnet is in another virtual network.
var otherSubnet = strings.Replace(armtest.SubnetID, "/vnet/", "/other/", 1)

// rangeOf is the range that is published of a machine.
func rangeOf(t *testing.T, p *provider, i *cloudipam.Instance) string {
	t.Helper()
	var status v2.CiliumNodeStatus
	p.SetStatus(nodeOf(i.ID), i, &status)
	if len(status.Azure.Interfaces) != 1 || len(status.Azure.Interfaces[0].Addresses) != 2 {
		t.Fatalf("the status is %+v", status.Azure)
	}
	return status.Azure.Interfaces[0].CIDR
}

// AZIPAM-25; number 21 of the contract's ipam-azure.md: without the list of virtual networks subnets are read one by one; one that cannot be
// read costs its own range and nothing else; and the list is used again once it may be read.
func TestSubnetsOneByOne(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	c.AddSubnet(otherSubnet, "10.250.0.0/24")
	c.AddSubnet(strings.Replace(armtest.SubnetID, "/pods", "/unused", 1), "10.241.0.0/24")
	a := c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3", Secondary: 2})
	b := c.Run(armtest.Machine{Name: "alone", Secondary: 2, Subnet: otherSubnet})
	var forbidden atomic.Pointer[string] // parts of paths
	forbid := func(parts string) { forbidden.Store(&parts) }
	var asked atomic.Int64
	c.Forbidden = func(operation, path string) bool {
		if operation == armtest.OpSubnet {
			asked.Add(1)
		}
		return slices.ContainsFunc(strings.Fields(*forbidden.Load()), func(part string) bool {
			return part == "list" && operation == armtest.OpNetworks || operation == armtest.OpSubnet && strings.Contains(path, part)
		})
	}
	p, tree := inTerm(t, managed, serve(t, c))
	var log bytes.Buffer
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	check := func(name, a1, b1, health string, subnets, gets int) {
		t.Helper()
		before := c.Calls()[armtest.OpSubnet]
		s := readAll(t, p)
		if got := rangeOf(t, p, s.Instances[a]); got != a1 {
			t.Errorf("%s: the range of the first machine is %q", name, got)
		}
		if got := rangeOf(t, p, s.Instances[b]); got != b1 {
			t.Errorf("%s: the range of the second machine is %q", name, got)
		}
		if text := degraded(tree); !strings.Contains(text, health) || (health == "") != (text == "") {
			t.Errorf("%s: health is %q", name, text)
		}
		if made := c.Calls()[armtest.OpSubnet] - before; len(s.Subnets) != subnets || made != gets {
			t.Errorf("%s: %d subnets with %d single reads", name, len(s.Subnets), made)
		}
	}
	const first, second = "10.240.0.0/16", "10.250.0.0/24"
	forbid("")
	check("all may be read", first, second, "", 3, 0)
	forbid("list")
	check("no list", first, second, "", 2, 2)
	p.subnets.Store(nil) // as after a restart
	forbid("list /other/")
	for range 2 {
		check("one network may not be read", first, "", "1 subnets of interfaces cannot be read, "+otherSubnet+" among them: the operator's identity lacks Microsoft.Network/virtualNetworks/subnets/read", 1, 1)
	}
	if n := strings.Count(log.String(), "subnets cannot be read"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log.String())
	}
	before := asked.Load()
	if one, err := p.ReadInstances(t.Context(), []string{b}); err != nil || rangeOf(t, p, one[b]) != "" || asked.Load() != before {
		t.Errorf("a machine alone: %+v, %v; %d single reads", one, err, asked.Load()-before)
	}
	forbid("list /subnets/")
	check("what was read before stays", first, "", "2 subnets", 1, 0)
	for range maxMissed - 1 {
		readAll(t, p)
	}
	check("and not for ever", "", "", "2 subnets", 0, 0)
	forbid("")
	check("all may be read again", first, second, "", 3, 0)
	if text := log.String(); strings.Count(text, "virtual networks may not be listed") != 1 || strings.Count(text, "virtual networks are listed again") != 1 {
		t.Errorf("the log is\n%s", text)
	}
}

// AZIPAM-25: what is not about one subnet fails the read, and a subnet is not read from another subscription.
func TestSubnetsThatFail(t *testing.T) {
	elsewhere := strings.Replace(armtest.SubnetID, "/S1/", "/S2/", 1)
	c := armtest.NewCloud("10.240.0.0/16")
	c.AddSubnet(elsewhere, "10.250.0.0/24")
	a := c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3", Secondary: 2})
	b := c.Run(armtest.Machine{ScaleSet: "pool1", Name: "4", Secondary: 2, Subnet: elsewhere})
	c.Forbidden = func(operation, _ string) bool { return operation == armtest.OpNetworks }
	var status atomic.Int64
	c.Fault = func(operation string) (f armtest.Fault) {
		if operation == armtest.OpSubnet && status.Load() > 0 {
			f.Status, f.Code = int(status.Load()), "Refused"
		}
		return f
	}
	p, tree := inTerm(t, managed, serve(t, c))
	s := readAll(t, p)
	if rangeOf(t, p, s.Instances[a]) != "10.240.0.0/16" || rangeOf(t, p, s.Instances[b]) != "" || !strings.Contains(degraded(tree), elsewhere+" among them: it does not exist") {
		t.Errorf("%+v, %q", s.Subnets, degraded(tree))
	}
	for code, fails := range map[int]bool{http.StatusUnauthorized: true, http.StatusBadRequest: false} {
		status.Store(int64(code))
		s, err := p.Read(t.Context())
		if (err != nil) != fails || !fails && rangeOf(t, p, s.Instances[a]) != "10.240.0.0/16" {
			t.Errorf("%d: %+v, %v", code, s, err)
		}
	}
	if text := degraded(tree); !strings.Contains(text, "2 subnets") || strings.Contains(text, "correlation") {
		t.Errorf("health is %q", text)
	}
}

// AZIPAM-6; number 22 of the contract's ipam-azure.md: a stand-alone machine that is new is read without a complete read, with its first
// interface and a subnet that is new.
func TestNewMachineAlone(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	p, _ := inTerm(t, managed, serve(t, c))
	readAll(t, p)
	c.AddSubnet(otherSubnet, "10.250.0.0/24")
	id := c.Run(armtest.Machine{Name: "VM1", Secondary: 2, Subnet: otherSubnet})
	before := c.Calls()
	one, err := p.ReadInstances(t.Context(), []string{id})
	if err != nil || one[id] == nil || len(one[id].Interfaces) != 1 || rangeOf(t, p, one[id]) != "10.250.0.0/24" {
		t.Fatalf("%+v, %v", one, err)
	}
	after := c.Calls()
	if after[armtest.OpScaleSets] != before[armtest.OpScaleSets] || after[armtest.OpNetworks] != before[armtest.OpNetworks] || after[armtest.OpSubnet] != 1 {
		t.Errorf("the calls were %v and are %v", before, after)
	}
}

// AZIPAM-5; number 23 of the contract's ipam-azure.md: a scale set whose capacity is 0 is not asked for interfaces; one that has none yet is, and
// is empty.
func TestEmptyScaleSets(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	c.AddScaleSet("empty", 0)
	p, _ := inTerm(t, managed, serve(t, c))
	if s := readAll(t, p); len(s.Instances) != 0 || c.Calls()[armtest.OpScaleSetNICs] != 0 {
		t.Errorf("%d machines, calls %v", len(s.Instances), c.Calls())
	}
	c.AddScaleSet("starting", 2)
	if s := readAll(t, p); len(s.Instances) != 0 || c.Calls()[armtest.OpScaleSetNICs] != 1 {
		t.Errorf("%d machines, calls %v", len(s.Instances), c.Calls())
	}
}
