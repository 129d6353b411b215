// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package armtest

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"
)

// Codes of prefixes without a free address: of an operation that has failed, and of a request that is refused.
const (
	CodeFullForMachine = "PublicIpPrefixOutOfIpAddressesForVMScaleSet"
	codeFull           = "PublicIpPrefixOutOfIpAddresses"
)

// prefix is a public IP prefix.
type prefix struct {
	id, name, state string
	cidr            netip.Prefix
	tags            map[string]string
	used            map[netip.Addr]string // by whose they are
	hides           bool                  // what is used
}

// public is a public address: of an ipConfiguration of a scale set's machine, or a resource of its own.
type public struct {
	name, prefix, address, state string
	id                           string // of a resource of its own
	config                       string // the ipConfiguration that has the resource
}

// AddPrefix adds a public IP prefix, and returns its id.
func (c *Cloud) AddPrefix(name, cidr string, tags map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &prefix{id: scope + "/Microsoft.Network/publicIPPrefixes/" + name, name: name, state: "Succeeded", cidr: netip.MustParsePrefix(cidr), tags: tags, used: map[netip.Addr]string{}}
	c.prefixes[strings.ToLower(p.id)] = p
	return p.id
}

// FillPrefix has others use a number of addresses of a prefix.
func (c *Cloud) FillPrefix(id string, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range count {
		c.prefixes[strings.ToLower(id)].take("/other/" + strconv.Itoa(k))
	}
}

// EmptyPrefix has others give back what they use of a prefix.
func (c *Cloud) EmptyPrefix(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.prefixes[strings.ToLower(id)].used, func(_ netip.Addr, by string) bool { return strings.HasPrefix(by, "/other/") })
}

// SetPrefix sets the provisioning state of a prefix, and whether lists hide what is used of it.
func (c *Cloud) SetPrefix(id, state string, hides bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.prefixes[strings.ToLower(id)]
	p.state, p.hides = state, hides
}

// PublicAddresses are the public addresses that machines have, by whose they are: a machine, or a public address of its own.
func (c *Cloud) PublicAddresses() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]string{}
	for _, p := range c.prefixes {
		for a, by := range p.used {
			if !strings.HasPrefix(by, "/other/") {
				all[a.String()] = by
			}
		}
	}
	return all
}

// HasPublic reports whether the primary ipConfiguration of a machine has a public address, or asks for one.
func (c *Cloud) HasPublic(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machines[id].nics[0].configs[0].public != nil
}

// take returns an address that is not used.
func (p *prefix) take(by string) (string, bool) {
	for a := p.cidr.Masked().Addr(); p.cidr.Contains(a); a = a.Next() {
		if _, used := p.used[a]; !used {
			p.used[a] = by
			return a.String(), true
		}
	}
	return "", false
}

// free gives back the address of a public address.
func (c *Cloud) free(of *public) {
	if p := c.prefixes[strings.ToLower(of.prefix)]; p != nil && of.address != "" {
		delete(p.used, netip.MustParseAddr(of.address))
	}
}

// givePublic gives a new machine a public address, as its creator has asked for.
func (c *Cloud) givePublic(m *machine, name, prefixID string) {
	of := &public{name: name, prefix: prefixID}
	first := m.nics[0].configs[0]
	first.public = of
	if m.scaleSet == "" {
		of.id, of.config = scope+"/Microsoft.Network/publicIPAddresses/"+name, m.nics[0].id+"/ipConfigurations/"+first.name
		c.publics[strings.ToLower(of.id)] = of
	}
	m.failed = !c.fill(of, m.id)
}

// fill gives a public address one of its prefix.
func (c *Cloud) fill(of *public, by string) (ok bool) {
	if p := c.prefixes[strings.ToLower(of.prefix)]; p != nil {
		of.address, ok = p.take(by)
	}
	if of.state = "Succeeded"; !ok {
		of.state = "Failed"
	}
	return ok
}

// dropPublic takes the public address off an ipConfiguration.
func (c *Cloud) dropPublic(a *config) {
	switch of := a.public; {
	case of == nil:
	case of.id != "":
		of.config = ""
	default:
		c.free(of)
	}
	a.public = nil
}

// samePublic reports whether an ipConfiguration has the public address that is asked for.
func samePublic(a, b *public) bool {
	return a == b || a != nil && b != nil && a.name == b.name && a.id == b.id && strings.EqualFold(a.prefix, b.prefix)
}

// changePublics gives ipConfigurations the public addresses that a change asks for.
func (c *Cloud) changePublics(n *nic, list []wanted) {
	for _, a := range n.configs {
		for _, w := range list {
			if a.name != w.name || samePublic(a.public, w.public) {
				continue
			}
			c.dropPublic(a)
			if a.public = w.public; a.public != nil && a.public.id != "" {
				a.public.config = n.id + "/ipConfigurations/" + a.name
			}
		}
	}
}

// settlePublics gives the public addresses of an interface of a scale set one of their prefix. One that gets none has failed, and each
// change tries it again.
func (c *Cloud) settlePublics(n *nic, fail bool) (code string) {
	for _, a := range n.configs {
		of := a.public
		if of == nil || of.id != "" || of.address != "" {
			continue
		}
		if fail {
			of.state = "Failed"
		} else if !c.fill(of, n.id) {
			code = CodeFullForMachine
		}
	}
	return code
}

func (c *Cloud) listPrefixes(string, *armnetwork.PublicIPPrefixesClientListOptions) (resp azfake.PagerResponder[armnetwork.PublicIPPrefixesClientListResponse]) {
	var list []*armnetwork.PublicIPPrefix
	for _, key := range slices.Sorted(maps.Keys(c.prefixes)) {
		list = append(list, c.prefixes[key].shown())
	}
	items, next := page(c, list)
	resp.AddPage(http.StatusOK, armnetwork.PublicIPPrefixesClientListResponse{PublicIPPrefixListResult: armnetwork.PublicIPPrefixListResult{Value: items, NextLink: next}}, nil)
	return resp
}

func (p *prefix) shown() *armnetwork.PublicIPPrefix {
	of := &armnetwork.PublicIPPrefix{
		ID: to.Ptr(p.id), Name: to.Ptr(p.name), Location: to.Ptr("westeurope"), Tags: map[string]*string{}, SKU: &armnetwork.PublicIPPrefixSKU{Name: to.Ptr(armnetwork.PublicIPPrefixSKUNameStandard)},
		Properties: &armnetwork.PublicIPPrefixPropertiesFormat{
			IPPrefix: to.Ptr(p.cidr.String()), ProvisioningState: to.Ptr(armnetwork.ProvisioningState(p.state)),
			PublicIPAddressVersion: to.Ptr(armnetwork.IPVersionIPv4),
		},
	}
	for name, value := range p.tags {
		of.Tags[name] = to.Ptr(value)
	}
	if !p.hides {
		for _, by := range slices.Sorted(maps.Values(p.used)) {
			of.Properties.PublicIPAddresses = append(of.Properties.PublicIPAddresses, &armnetwork.ReferencedPublicIPAddress{ID: to.Ptr(by)})
		}
	}
	return of
}

func (c *Cloud) listMachinePublics(_, scaleSet, name, nicName, configName string, _ *armnetwork.PublicIPAddressesClientListVirtualMachineScaleSetVMPublicIPAddressesOptions) (resp azfake.PagerResponder[armnetwork.PublicIPAddressesClientListVirtualMachineScaleSetVMPublicIPAddressesResponse]) {
	m := c.find(scaleSet, name)
	if m == nil || m.nicNamed(nicName) == nil {
		c.request.notFound = true
		return resp
	}
	var list []*armnetwork.PublicIPAddress
	for _, a := range m.nicNamed(nicName).configs {
		if a.public != nil && a.public.address != "" && strings.EqualFold(a.name, configName) {
			list = append(list, a.public.shown())
		}
	}
	items, next := page(c, list)
	resp.AddPage(http.StatusOK, armnetwork.PublicIPAddressesClientListVirtualMachineScaleSetVMPublicIPAddressesResponse{PublicIPAddressListResult: armnetwork.PublicIPAddressListResult{Value: items, NextLink: next}}, nil)
	return resp
}

func (of *public) shown() *armnetwork.PublicIPAddress {
	shown := &armnetwork.PublicIPAddress{
		ID: to.Ptr(of.id), Name: to.Ptr(of.name), Location: to.Ptr("westeurope"),
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{
			ProvisioningState: to.Ptr(armnetwork.ProvisioningState(of.state)), PublicIPAllocationMethod: to.Ptr(armnetwork.IPAllocationMethodStatic),
			PublicIPPrefix: &armnetwork.SubResource{ID: to.Ptr(of.prefix)},
		},
	}
	if of.address != "" {
		shown.Properties.IPAddress = to.Ptr(of.address)
	}
	if of.config != "" {
		shown.Properties.IPConfiguration = &armnetwork.IPConfiguration{ID: to.Ptr(of.config)}
	}
	return shown
}

// publicNamed is a public address of its own.
func (c *Cloud) publicNamed(name string) (of *public, id string) {
	id = scope + "/Microsoft.Network/publicIPAddresses/" + name
	return c.publics[strings.ToLower(id)], id
}

func (c *Cloud) getPublic(_ context.Context, _, name string, _ *armnetwork.PublicIPAddressesClientGetOptions) (resp azfake.Responder[armnetwork.PublicIPAddressesClientGetResponse], errs azfake.ErrorResponder) {
	of, _ := c.publicNamed(name)
	if of == nil {
		errs.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return resp, errs
	}
	resp.SetResponse(http.StatusOK, armnetwork.PublicIPAddressesClientGetResponse{PublicIPAddress: *of.shown()}, nil)
	return resp, errs
}

// refusePublic is why a public address cannot be made as it is asked for.
func (c *Cloud) refusePublic(is *public, body armnetwork.PublicIPAddress) (status int, code string) {
	p := body.Properties
	switch {
	case is != nil && is.state == "Updating":
		return http.StatusConflict, "AnotherOperationInProgress"
	case is != nil:
		return http.StatusBadRequest, "PublicIPPrefixCannotBeChanged"
	case p == nil || body.Location == nil || *body.Location != "westeurope":
		return http.StatusBadRequest, "LocationRequired"
	case body.SKU == nil || *body.SKU.Name != armnetwork.PublicIPAddressSKUNameStandard || *p.PublicIPAllocationMethod != armnetwork.IPAllocationMethodStatic:
		return http.StatusBadRequest, "PublicIPAddressAndPublicIPPrefixSkuNotMatch"
	case p.PublicIPPrefix == nil || c.prefixes[strings.ToLower(*p.PublicIPPrefix.ID)] == nil:
		return http.StatusBadRequest, "InvalidResourceReference"
	}
	if of := c.prefixes[strings.ToLower(*p.PublicIPPrefix.ID)]; len(of.used) == 1<<(32-of.cidr.Bits()) {
		return http.StatusBadRequest, codeFull
	}
	return 0, ""
}

func (c *Cloud) putPublic(_ context.Context, _, name string, body armnetwork.PublicIPAddress, _ *armnetwork.PublicIPAddressesClientBeginCreateOrUpdateOptions) (resp azfake.PollerResponder[armnetwork.PublicIPAddressesClientCreateOrUpdateResponse], errs azfake.ErrorResponder) {
	is, id := c.publicNamed(name)
	if status, code := c.refusePublic(is, body); code != "" {
		errs.SetResponseError(status, code)
		return resp, errs
	}
	of := &public{name: name, id: id, prefix: *body.Properties.PublicIPPrefix.ID, state: "Updating"}
	c.publics[strings.ToLower(id)] = of
	o := c.begin(id)
	fail := c.request.fail
	o.finish = func() {
		switch {
		case fail:
			of.state, o.failed = "Failed", "InternalExecutionError"
		case !c.fill(of, id):
			o.failed = codeFull
		}
	}
	resp.SetTerminalResponse(http.StatusCreated, armnetwork.PublicIPAddressesClientCreateOrUpdateResponse{PublicIPAddress: *of.shown()}, nil)
	return resp, errs
}

// begin begins an operation of a public address.
func (c *Cloud) begin(id string) *operation {
	c.number++
	c.request.operation = "op-" + strconv.Itoa(c.number)
	c.adds[strings.ToLower(id)]++
	o := &operation{due: c.requests + c.Settle}
	c.running[c.request.operation] = o
	return o
}

func (c *Cloud) deletePublic(_ context.Context, _, name string, _ *armnetwork.PublicIPAddressesClientBeginDeleteOptions) (resp azfake.PollerResponder[armnetwork.PublicIPAddressesClientDeleteResponse], errs azfake.ErrorResponder) {
	of, id := c.publicNamed(name)
	switch {
	case of == nil:
		errs.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return resp, errs
	case of.config != "":
		errs.SetResponseError(http.StatusBadRequest, "PublicIPAddressCannotBeDeleted")
		return resp, errs
	}
	o := c.begin(id)
	o.finish = func() {
		c.free(of)
		delete(c.publics, strings.ToLower(id))
	}
	resp.SetTerminalResponse(http.StatusOK, armnetwork.PublicIPAddressesClientDeleteResponse{}, nil)
	return resp, errs
}

func (c *Cloud) getSubnet(_ context.Context, group, network, name string, _ *armnetwork.SubnetsClientGetOptions) (resp azfake.Responder[armnetwork.SubnetsClientGetResponse], errs azfake.ErrorResponder) {
	id := "/subscriptions/" + Subscription + "/resourceGroups/" + group + "/providers/Microsoft.Network/virtualNetworks/" + network + "/subnets/" + name
	s := c.subnets[strings.ToLower(id)]
	if s == nil {
		errs.SetResponseError(http.StatusNotFound, "NotFound")
		return resp, errs
	}
	resp.SetResponse(http.StatusOK, armnetwork.SubnetsClientGetResponse{Subnet: *s.shown()}, nil)
	return resp, errs
}
