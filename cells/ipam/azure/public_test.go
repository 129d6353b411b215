// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"
)

// prefixForTest is a public IP prefix of four addresses.
func prefixForTest(name string, used int, edit func(*armnetwork.PublicIPPrefix)) *armnetwork.PublicIPPrefix {
	p := &armnetwork.PublicIPPrefix{
		ID: &name, Location: to.Ptr("westeurope"), Tags: map[string]*string{"net": to.Ptr("egress"), "Team": to.Ptr("a")},
		Properties: &armnetwork.PublicIPPrefixPropertiesFormat{
			PrefixLength: to.Ptr[int32](30), ProvisioningState: to.Ptr(armnetwork.ProvisioningStateSucceeded), PublicIPAddresses: make([]*armnetwork.ReferencedPublicIPAddress, used),
		},
	}
	if edit != nil {
		edit(p)
	}
	return p
}

// AZIPAM-27; number 24 of the contract's ipam-azure.md: which prefix is chosen.
func TestChoosePrefix(t *testing.T) {
	length := func(bits int32) func(*armnetwork.PublicIPPrefix) {
		return func(p *armnetwork.PublicIPPrefix) { p.Properties.PrefixLength = &bits }
	}
	for name, test := range map[string]struct {
		list []*armnetwork.PublicIPPrefix
		tags string
		want string
		why  string
	}{
		"24":                 {[]*armnetwork.PublicIPPrefix{prefixForTest("full", 4, nil), prefixForTest("free", 1, nil)}, "net=egress", "free", ""},
		"most free":          {[]*armnetwork.PublicIPPrefix{nil, prefixForTest("a", 2, nil), prefixForTest("b", 1, nil), prefixForTest("c", 1, nil)}, "net=egress", "b", ""},
		"all tags":           {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, nil)}, "net=egress,team=a", "a", ""},
		"one tag is another": {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, nil)}, "net=egress,Team=b", "", "no public IP prefix of resource group g has the tags Team=b,net=egress"},
		"case of values":     {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, nil)}, "net=Egress", "", "no public IP prefix"},
		"none":               {nil, "net=egress", "", "no public IP prefix"},
		"all are full":       {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 4, nil), prefixForTest("b", 5, nil)}, "net=egress", "", "none of 2 public IP prefixes with the tags net=egress is ready in West Europe"},
		"claimed":            {[]*armnetwork.PublicIPPrefix{prefixForTest("claimed", 3, nil)}, "net=egress", "", "none of 1"},
		"another region":     {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, func(p *armnetwork.PublicIPPrefix) { p.Location = to.Ptr("northeurope") })}, "net=egress", "", "none of 1"},
		"not ready": {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, func(p *armnetwork.PublicIPPrefix) {
			p.Properties.ProvisioningState = to.Ptr(armnetwork.ProvisioningStateFailed)
		})}, "net=egress", "", "none of 1"},
		"IPv6": {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, func(p *armnetwork.PublicIPPrefix) {
			p.Properties.PublicIPAddressVersion = to.Ptr(armnetwork.IPVersionIPv6)
		})}, "net=egress", "", "none of 1"},
		"by its range":          {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 4, func(p *armnetwork.PublicIPPrefix) { p.Properties.IPPrefix = to.Ptr("203.0.113.0/29") })}, "net=egress", "a", ""},
		"no length":             {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, length(0))}, "net=egress", "", "none of 1"},
		"more than there are":   {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, length(33))}, "net=egress", "", "none of 1"},
		"without properties":    {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, func(p *armnetwork.PublicIPPrefix) { p.Properties = nil })}, "net=egress", "", "none of 1"},
		"a region of no prefix": {[]*armnetwork.PublicIPPrefix{prefixForTest("a", 0, func(p *armnetwork.PublicIPPrefix) { p.Location = nil })}, "net=egress", "a", ""},
	} {
		w := wish{group: "g", region: "West Europe", tags: map[string]string{}}
		for tag := range strings.SplitSeq(test.tags, ",") {
			key, value, _ := strings.Cut(tag, "=")
			w.tags[key] = value
		}
		got, err := choosePrefix(test.list, w, func(p *armnetwork.PublicIPPrefix) int {
			if *p.ID == "claimed" {
				return 1
			}
			return 0
		})
		text, id := "", ""
		if err != nil {
			text = err.Error()
		}
		if got != nil {
			id = deref(got.ID)
		}
		if id != test.want || (text == "") != (test.why == "") || !strings.HasPrefix(text, test.why) {
			t.Errorf("%s: %q, %q, want %q, %q", name, id, text, test.want, test.why)
		}
	}
}

// AZIPAM-27, AZIPAM-29: an address that a call is about to get is counted, and a prefix that has refused one is left out for ten minutes.
func TestClaims(t *testing.T) {
	var c claims
	begin := time.Now()
	choose := func(holder string, asked, now time.Time, shown ...string) (*claim, error) {
		p := prefixForTest("a", 2, nil) // of four
		for k, id := range shown {
			p.Properties.PublicIPAddresses[k] = &armnetwork.ReferencedPublicIPAddress{ID: &id}
		}
		_, of, err := c.choose([]*armnetwork.PublicIPPrefix{p}, wish{}, holder, asked, now)
		return of, err
	}
	one, err := choose("/nics/1", begin, begin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := choose("/nics/2", begin, begin); err != nil {
		t.Error(err)
	}
	if _, err := choose("/nics/3", begin, begin); err == nil {
		t.Error("a third address of two is claimed")
	}
	c.end(one)
	if _, err := choose("/nics/3", begin, begin); err == nil {
		t.Error("an address is claimed of a list that is older than the end of the call that got it")
	}
	if _, err := choose("/nics/3", begin, begin, "/NICs/1/public"); err != nil {
		t.Errorf("an address that the list shows is counted twice: %v", err)
	}
	c = claims{}
	if one, err = choose("/nics/1", begin, begin); err != nil {
		t.Fatal(err)
	}
	c.end(one)
	later := time.Now().Add(time.Nanosecond)
	for _, holder := range []string{"/nics/2", "/nics/3"} { // the list has the first one, then
		if _, err := choose(holder, later, later); err != nil {
			t.Error(err)
		}
	}
	c = claims{}
	c.refuse("a", begin)
	if _, err := choose("/nics/1", begin, begin.Add(refusedAge-1)); err == nil {
		t.Error("a prefix that has refused an address is asked again")
	}
	if _, err := choose("/nics/1", begin, begin.Add(refusedAge)); err != nil {
		t.Errorf("a prefix is left out for ever: %v", err)
	}
}

// AZIPAM-28: names of public addresses are those of their interfaces, and not too long for Azure.
func TestPublicNames(t *testing.T) {
	long := strings.Repeat("n", 80)
	if got := publicNameOf("eth0"); got != "cilium-managed-public-ip-eth0" {
		t.Error(got)
	}
	one, two := publicNameOf(long+"1"), publicNameOf(long+"2")
	if len(one) != 80 || one == two || one != publicNameOf(long+"1") || !isOurs(one) || isOurs("mine") {
		t.Errorf("%q and %q", one, two)
	}
}
