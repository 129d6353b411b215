// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// publicName is the name of the configuration of a public address that the operator gives to a machine of a scale set, as in the
// original. It begins the names of public addresses of stand-alone machines, which are resources of their own.
const publicName = "cilium-managed-public-ip"

// maxName is how long a name of a public address can be.
const maxName = 80

// publicNameOf is the name of the public address of an interface of a stand-alone machine. It is the same after a restart.
func publicNameOf(nic string) string {
	name := publicName + "-" + nic
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(nic))
	end := "-" + hex.EncodeToString(sum[:8])
	return name[:maxName-len(end)] + end
}

// isOurs reports whether the operator has given its name to a public address.
func isOurs(name string) bool {
	return strings.HasPrefix(strings.ToLower(name), publicName)
}

// wish is what the public address of a machine is taken from.
type wish struct {
	group, region string
	tags          map[string]string
}

// choosePrefix is a public IP prefix with all tags that is ready and has a free address: the one with most. claimed is how many addresses
// others are about to get that a prefix does not show.
func choosePrefix(list []*armnetwork.PublicIPPrefix, w wish, claimed func(*armnetwork.PublicIPPrefix) int) (*armnetwork.PublicIPPrefix, error) {
	tagged := slices.DeleteFunc(slices.Clone(list), func(p *armnetwork.PublicIPPrefix) bool { return p == nil || !hasTags(p.Tags, w.tags) })
	if len(tagged) == 0 {
		return nil, noPrefix("no public IP prefix of resource group %s has the tags %s", w.group, textOf(w.tags))
	}
	var best *armnetwork.PublicIPPrefix
	most := 0
	for _, p := range tagged {
		free := freeIn(p)
		if free > 0 {
			free -= claimed(p)
		}
		if !isInRegion(p, w.region) || free <= 0 || free < most || free == most && cmp.Compare(deref(p.ID), deref(best.ID)) > 0 {
			continue
		}
		best, most = p, free
	}
	if best == nil {
		return nil, noPrefix("none of %d public IP prefixes with the tags %s is ready in %s and has a free address", len(tagged), textOf(w.tags), cmp.Or(w.region, "the region"))
	}
	return best, nil
}

func noPrefix(format string, args ...any) error {
	return &cloudipam.NodeError{Status: "unableToFindPublicIPPrefix", Text: fmt.Sprintf(format, args...)}
}

// hasTags reports whether a resource has all of tags. Names of tags have no case.
func hasTags(has map[string]*string, wanted map[string]string) bool {
	for name, value := range wanted {
		found := false
		for of, is := range has {
			found = found || strings.EqualFold(of, name) && deref(is) == value
		}
		if !found {
			return false
		}
	}
	return true
}

// textOf are tags in order.
func textOf(tags map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, name+"="+tags[name])
	}
	return strings.Join(list, ",")
}

// freeIn is how many addresses of a prefix no public address has, 0 for one that is not ready or not of IPv4.
func freeIn(p *armnetwork.PublicIPPrefix) int {
	of := p.Properties
	if of == nil || deref(of.ProvisioningState) != armnetwork.ProvisioningStateSucceeded || deref(of.PublicIPAddressVersion) == armnetwork.IPVersionIPv6 {
		return 0
	}
	bits := int(deref(of.PrefixLength))
	if r, err := netip.ParsePrefix(deref(of.IPPrefix)); err == nil {
		bits = r.Bits()
	}
	if bits < 8 || bits > 32 {
		return 0
	}
	return 1<<(32-bits) - len(of.PublicIPAddresses)
}

// isInRegion reports whether a prefix is in a region, whose names have spaces or not.
func isInRegion(p *armnetwork.PublicIPPrefix, region string) bool {
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "")) }
	return region == "" || deref(p.Location) == "" || plain(deref(p.Location)) == plain(region)
}

// claims are what lists of prefixes do not show: the addresses that calls which are under way get, and that Azure has refused one. The
// zero value is ready for use.
type claims struct {
	mu      sync.Mutex
	made    []*claim
	refused map[string]time.Time // until when a prefix is left out, by id
}

// claim is an address of a prefix that a call gets.
type claim struct {
	prefix string
	holder string    // begins the id of the public address
	ended  time.Time // the call; zero while it is under way
}

// refusedAge is for how long a prefix is left out that has refused an address, and shows free ones.
const refusedAge = 10 * time.Minute

// choose chooses a prefix of a list that was asked for at a time, and counts an address of it for a holder. It is to be ended.
func (c *claims) choose(list []*armnetwork.PublicIPPrefix, w wish, holder string, asked, now time.Time) (*armnetwork.PublicIPPrefix, *claim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.refused, func(_ string, until time.Time) bool { return !now.Before(until) })
	c.made = slices.DeleteFunc(c.made, func(of *claim) bool { return !of.ended.IsZero() && now.Sub(of.ended) > refusedAge })
	of, err := choosePrefix(list, w, func(p *armnetwork.PublicIPPrefix) (n int) {
		if _, is := c.refused[deref(p.ID)]; is {
			return 1 << 30
		}
		for _, other := range c.made {
			if other.prefix == deref(p.ID) && (other.ended.IsZero() || other.ended.After(asked)) && !shows(p, other.holder) {
				n++
			}
		}
		return n
	})
	if err != nil {
		return nil, nil, err
	}
	made := &claim{prefix: deref(of.ID), holder: holder}
	c.made = append(c.made, made)
	return of, made, nil
}

// shows reports whether a prefix lists the public address of a holder.
func shows(p *armnetwork.PublicIPPrefix, holder string) bool {
	return slices.ContainsFunc(p.Properties.PublicIPAddresses, func(of *armnetwork.ReferencedPublicIPAddress) bool {
		return of != nil && strings.HasPrefix(strings.ToLower(deref(of.ID))+"/", strings.ToLower(holder)+"/")
	})
}

// end ends a claim, whose address is in each list that is asked for later.
func (c *claims) end(of *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of.ended = time.Now()
}

// refuse leaves a prefix out for a while.
func (c *claims) refuse(id string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[string]time.Time{}
	}
	c.refused[id] = now.Add(refusedAge)
}

// machineConfig is the primary ipConfiguration in the model of a machine of a scale set.
type machineConfig struct {
	model armcompute.VirtualMachineScaleSetVM
	nic   string // the name of its interface
	ip    *armcompute.VirtualMachineScaleSetIPConfiguration
}

// primaryOf is the primary ipConfiguration of the primary interface in a model. name is that of the interface where none is marked.
func primaryOf(model armcompute.VirtualMachineScaleSetVM, name string) (machineConfig, bool) {
	of := configOf(model, name)
	if p := model.Properties; p != nil && p.NetworkProfileConfiguration != nil {
		for _, c := range p.NetworkProfileConfiguration.NetworkInterfaceConfigurations {
			if c != nil && c.Properties != nil && deref(c.Properties.Primary) {
				of = c
			}
		}
	}
	if of == nil {
		return machineConfig{}, false
	}
	for _, ip := range of.Properties.IPConfigurations {
		if ip != nil && ip.Properties != nil && (deref(ip.Properties.Primary) || len(of.Properties.IPConfigurations) == 1) {
			return machineConfig{model, deref(of.Name), ip}, true
		}
	}
	return machineConfig{}, false
}

// public is the configuration of the public address, nil if there is none.
func (c machineConfig) public() *armcompute.VirtualMachineScaleSetPublicIPAddressConfiguration {
	return c.ip.Properties.PublicIPAddressConfiguration
}

// set gives the ipConfiguration a public address of a prefix.
func (c machineConfig) set(prefix string) {
	c.ip.Properties.PublicIPAddressConfiguration = &armcompute.VirtualMachineScaleSetPublicIPAddressConfiguration{
		Name:       to.Ptr(publicName),
		Properties: &armcompute.VirtualMachineScaleSetPublicIPAddressConfigurationProperties{PublicIPPrefix: &armcompute.SubResource{ID: &prefix}},
	}
}

// remove takes the public address from the ipConfiguration.
func (c machineConfig) remove() { c.ip.Properties.PublicIPAddressConfiguration = nil }

// isBusy reports whether Azure works on the machine.
func (c machineConfig) isBusy() bool { return isWorking(c.state()) }

// hasFailed reports whether the last change of the machine has failed. One whose public address has no place stays so.
func (c machineConfig) hasFailed() bool { return strings.EqualFold(c.state(), failed) }

func (c machineConfig) state() string {
	if c.model.Properties == nil {
		return ""
	}
	return deref(c.model.Properties.ProvisioningState)
}

// isWorking reports whether a provisioning state is none that lasts.
func isWorking(state string) bool {
	return slices.ContainsFunc([]string{updating, "creating", "deleting", "migrating"}, func(of string) bool { return strings.EqualFold(of, state) })
}

// addressIn is the first address in a list of public addresses, "" for none.
func addressIn(list []*armnetwork.PublicIPAddress) string {
	for _, p := range list {
		if p != nil && p.Properties != nil && cloudipam.IsForPods(deref(p.Properties.IPAddress)) {
			return *p.Properties.IPAddress
		}
	}
	return ""
}

// primaryOfNIC is the primary ipConfiguration of an interface, nil if there is none.
func primaryOfNIC(of armnetwork.Interface) *armnetwork.InterfaceIPConfiguration {
	if of.Properties == nil {
		return nil
	}
	for _, ip := range of.Properties.IPConfigurations {
		if ip != nil && ip.Properties != nil && (deref(ip.Properties.Primary) || len(of.Properties.IPConfigurations) == 1) {
			return ip
		}
	}
	return nil
}

// newPublic is a public address of a prefix, in its region and zones.
func newPublic(prefix *armnetwork.PublicIPPrefix, region string) armnetwork.PublicIPAddress {
	of := armnetwork.PublicIPAddress{
		Location: to.Ptr(cmp.Or(deref(prefix.Location), region)), Zones: prefix.Zones,
		SKU: &armnetwork.PublicIPAddressSKU{Name: to.Ptr(armnetwork.PublicIPAddressSKUNameStandard)},
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{
			PublicIPAddressVersion: to.Ptr(armnetwork.IPVersionIPv4), PublicIPAllocationMethod: to.Ptr(armnetwork.IPAllocationMethodStatic),
			PublicIPPrefix: &armnetwork.SubResource{ID: prefix.ID},
		},
	}
	if s := prefix.SKU; s != nil && s.Name != nil {
		of.SKU.Name = to.Ptr(armnetwork.PublicIPAddressSKUName(*s.Name))
	}
	return of
}
