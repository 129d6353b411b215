// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package armtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	computefake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"
	networkfake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8/fake"
)

// factories are the fake servers of the SDK. They call the cloud with its lock.
func (c *Cloud) factories() (*computefake.ServerFactoryTransport, *networkfake.ServerFactoryTransport) {
	compute := &computefake.ServerFactory{
		VirtualMachineScaleSetsServer:   computefake.VirtualMachineScaleSetsServer{NewListPager: c.listScaleSets},
		VirtualMachineScaleSetVMsServer: computefake.VirtualMachineScaleSetVMsServer{Get: c.getMachine, BeginUpdate: c.updateMachine},
	}
	network := &networkfake.ServerFactory{
		InterfacesServer: networkfake.InterfacesServer{
			NewListPager: c.listNICs, Get: c.getNIC, BeginCreateOrUpdate: c.updateNIC,
			NewListVirtualMachineScaleSetNetworkInterfacesPager:   c.listScaleSetNICs,
			NewListVirtualMachineScaleSetVMNetworkInterfacesPager: c.listMachineNICs,
		},
		VirtualNetworksServer:  networkfake.VirtualNetworksServer{NewListAllPager: c.listNetworks},
		SubnetsServer:          networkfake.SubnetsServer{Get: c.getSubnet},
		PublicIPPrefixesServer: networkfake.PublicIPPrefixesServer{NewListPager: c.listPrefixes},
		PublicIPAddressesServer: networkfake.PublicIPAddressesServer{
			Get: c.getPublic, BeginCreateOrUpdate: c.putPublic, BeginDelete: c.deletePublic, NewListVirtualMachineScaleSetVMPublicIPAddressesPager: c.listMachinePublics,
		},
	}
	return computefake.NewServerFactoryTransport(compute), networkfake.NewServerFactoryTransport(network)
}

// page is the part of a list that the request asks for, and the link to the next one.
func page[T any](c *Cloud, list []*T) (items []*T, next *string) {
	from := min(c.request.skip, len(list))
	until := min(from+c.PageSize, len(list))
	if until < len(list) {
		u := c.request.url
		u.Scheme, u.Host = "https", managementHost
		q := u.Query()
		q.Set("$skiptoken", strconv.Itoa(until))
		u.RawQuery = q.Encode()
		next = to.Ptr(u.String())
	}
	return list[from:until], next
}

func (c *Cloud) listScaleSets(string, *armcompute.VirtualMachineScaleSetsClientListOptions) (resp azfake.PagerResponder[armcompute.VirtualMachineScaleSetsClientListResponse]) {
	var list []*armcompute.VirtualMachineScaleSet
	for _, name := range c.sets {
		capacity := c.capacity[name]
		for _, m := range c.machines {
			if m.scaleSet == name {
				capacity++
			}
		}
		list = append(list, &armcompute.VirtualMachineScaleSet{
			Location: to.Ptr("westeurope"), ID: to.Ptr(scope + "/Microsoft.Compute/virtualMachineScaleSets/" + name), Name: to.Ptr(name),
			SKU: &armcompute.SKU{Name: to.Ptr("Standard_D2"), Capacity: to.Ptr(capacity)},
		})
	}
	items, next := page(c, list)
	resp.AddPage(http.StatusOK, armcompute.VirtualMachineScaleSetsClientListResponse{VirtualMachineScaleSetListResult: armcompute.VirtualMachineScaleSetListResult{Value: items, NextLink: next}}, nil)
	return resp
}

// find is the machine of a scale set, or a stand-alone one.
func (c *Cloud) find(scaleSet, name string) *machine {
	for _, m := range c.machines {
		if strings.EqualFold(m.scaleSet, scaleSet) && strings.EqualFold(m.name, name) {
			return m
		}
	}
	return nil
}

func (c *Cloud) getMachine(_ context.Context, _, scaleSet, name string, _ *armcompute.VirtualMachineScaleSetVMsClientGetOptions) (resp azfake.Responder[armcompute.VirtualMachineScaleSetVMsClientGetResponse], errs azfake.ErrorResponder) {
	m := c.find(scaleSet, name)
	if m == nil {
		errs.SetResponseError(http.StatusNotFound, "NotFound")
		return resp, errs
	}
	resp.SetResponse(http.StatusOK, armcompute.VirtualMachineScaleSetVMsClientGetResponse{VirtualMachineScaleSetVM: c.model(m)}, nil)
	return resp, errs
}

// model is a machine of a scale set as Compute shows it.
func (c *Cloud) model(m *machine) armcompute.VirtualMachineScaleSetVM {
	state := "Succeeded"
	switch {
	case m.busy > 0:
		state = "Updating"
	case m.failed:
		state = "Failed"
	}
	v := armcompute.VirtualMachineScaleSetVM{
		Location: to.Ptr("westeurope"), ID: to.Ptr(m.id), InstanceID: to.Ptr(m.name), Etag: to.Ptr(m.etag()),
		Properties: &armcompute.VirtualMachineScaleSetVMProperties{
			ProvisioningState: to.Ptr(state), StorageProfile: &armcompute.StorageProfile{},
			NetworkProfileConfiguration: &armcompute.VirtualMachineScaleSetVMNetworkProfileConfiguration{},
		},
	}
	if c.Gallery {
		v.Properties.StorageProfile.ImageReference = &armcompute.ImageReference{ID: to.Ptr("/subscriptions/other/galleries/g/images/i")}
	}
	for at, n := range m.nics {
		of := &armcompute.VirtualMachineScaleSetNetworkConfiguration{Name: to.Ptr(n.name), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: to.Ptr(at == 0)}}
		for _, a := range n.configs {
			p := &armcompute.VirtualMachineScaleSetIPConfigurationProperties{Primary: to.Ptr(a.primary), Subnet: &armcompute.APIEntityReference{ID: to.Ptr(a.subnet)}, PrivateIPAddressVersion: to.Ptr(armcompute.IPVersionIPv4)}
			for _, g := range a.groups {
				p.ApplicationSecurityGroups = append(p.ApplicationSecurityGroups, &armcompute.SubResource{ID: to.Ptr(g)})
			}
			if a.public != nil {
				p.PublicIPAddressConfiguration = &armcompute.VirtualMachineScaleSetPublicIPAddressConfiguration{
					Name:       to.Ptr(a.public.name),
					Properties: &armcompute.VirtualMachineScaleSetPublicIPAddressConfigurationProperties{PublicIPPrefix: &armcompute.SubResource{ID: to.Ptr(a.public.prefix)}},
				}
			}
			of.Properties.IPConfigurations = append(of.Properties.IPConfigurations, &armcompute.VirtualMachineScaleSetIPConfiguration{Name: to.Ptr(a.name), Properties: p})
		}
		v.Properties.NetworkProfileConfiguration.NetworkInterfaceConfigurations = append(v.Properties.NetworkProfileConfiguration.NetworkInterfaceConfigurations, of)
	}
	return v
}

func (m *machine) etag() string { return fmt.Sprintf("%q", strconv.Itoa(m.tag)) }

// refusal is why a change of a machine is not accepted.
func (c *Cloud) refusal(m *machine) (status int, code string) {
	switch {
	case m == nil:
		return http.StatusNotFound, "NotFound"
	case m.busy > 0:
		return http.StatusConflict, "AnotherOperationInProgress"
	case c.request.ifMatch != m.etag():
		return http.StatusPreconditionFailed, "ConditionNotMet"
	}
	return 0, ""
}

func (c *Cloud) updateMachine(_ context.Context, _, scaleSet, name string, body armcompute.VirtualMachineScaleSetVM, _ *armcompute.VirtualMachineScaleSetVMsClientBeginUpdateOptions) (resp azfake.PollerResponder[armcompute.VirtualMachineScaleSetVMsClientUpdateResponse], errs azfake.ErrorResponder) {
	m := c.find(scaleSet, name)
	if status, code := c.refusal(m); code != "" {
		errs.SetResponseError(status, code)
		return resp, errs
	}
	if s := body.Properties.StorageProfile; s != nil && s.ImageReference != nil {
		errs.SetResponseError(http.StatusForbidden, "LinkedAuthorizationFailed")
		return resp, errs
	}
	for _, of := range body.Properties.NetworkProfileConfiguration.NetworkInterfaceConfigurations {
		n := m.nicNamed(*of.Name)
		var list []wanted
		for _, a := range of.Properties.IPConfigurations {
			w := wanted{name: *a.Name, subnet: *a.Properties.Subnet.ID}
			for _, g := range a.Properties.ApplicationSecurityGroups {
				w.groups = append(w.groups, *g.ID)
			}
			if of := a.Properties.PublicIPAddressConfiguration; of != nil {
				w.public = &public{name: *of.Name, prefix: *of.Properties.PublicIPPrefix.ID, state: "Updating"}
				if c.prefixes[strings.ToLower(w.public.prefix)] == nil {
					errs.SetResponseError(http.StatusBadRequest, "InvalidResourceReference")
					return resp, errs
				}
			}
			list = append(list, w)
		}
		if len(list) == len(n.configs) && !slices.ContainsFunc(list, func(w wanted) bool {
			return !slices.ContainsFunc(n.configs, func(a *config) bool { return a.name == w.name && samePublic(a.public, w.public) })
		}) {
			continue // as it is
		}
		id, code := c.change(m, n, list)
		if code != "" {
			errs.SetResponseError(http.StatusBadRequest, code)
			return resp, errs
		}
		c.request.operation = id
	}
	resp.SetTerminalResponse(http.StatusOK, armcompute.VirtualMachineScaleSetVMsClientUpdateResponse{VirtualMachineScaleSetVM: c.model(m)}, nil)
	return resp, errs
}

func (m *machine) nicNamed(name string) *nic {
	for _, n := range m.nics {
		if strings.EqualFold(n.name, name) {
			return n
		}
	}
	return nil
}

// shown is an interface as Network shows it.
func (c *Cloud) shown(m *machine, n *nic, configs []config) *armnetwork.Interface {
	state := armnetwork.ProvisioningStateSucceeded
	if m.busy > 0 {
		state = armnetwork.ProvisioningStateUpdating
	}
	of := &armnetwork.Interface{
		ID: to.Ptr(n.id), Name: to.Ptr(n.name), Etag: to.Ptr(m.etag()), Location: to.Ptr("westeurope"),
		Properties: &armnetwork.InterfacePropertiesFormat{
			MacAddress: to.Ptr(n.mac), Primary: to.Ptr(n == m.nics[0]), ProvisioningState: to.Ptr(state),
			VirtualMachine: &armnetwork.SubResource{ID: to.Ptr(m.id)}, NetworkSecurityGroup: &armnetwork.SecurityGroup{ID: to.Ptr(GroupID)},
		},
	}
	for _, a := range configs {
		p := &armnetwork.InterfaceIPConfigurationPropertiesFormat{
			Primary: to.Ptr(a.primary), PrivateIPAddress: to.Ptr(a.address), Subnet: &armnetwork.Subnet{ID: to.Ptr(a.subnet)},
			ProvisioningState: to.Ptr(armnetwork.ProvisioningState(a.state)), PrivateIPAddressVersion: to.Ptr(armnetwork.IPVersionIPv4),
		}
		for _, g := range a.groups {
			p.ApplicationSecurityGroups = append(p.ApplicationSecurityGroups, &armnetwork.ApplicationSecurityGroup{ID: to.Ptr(g)})
		}
		if a.public != nil && a.public.id != "" { // no more than the id
			p.PublicIPAddress = &armnetwork.PublicIPAddress{ID: to.Ptr(a.public.id)}
		}
		of.Properties.IPConfigurations = append(of.Properties.IPConfigurations, &armnetwork.InterfaceIPConfiguration{Name: to.Ptr(a.name), Properties: p})
	}
	return of
}

// select are the interfaces of machines, as lists show them.
func (c *Cloud) nicsOf(wants func(*machine) bool) (list []*armnetwork.Interface) {
	for _, m := range c.machines {
		for _, n := range m.nics {
			if wants(m) {
				list = append(list, c.shown(m, n, c.listed(m, n)))
			}
		}
	}
	slices.SortFunc(list, func(a, b *armnetwork.Interface) int { return strings.Compare(*a.ID, *b.ID) })
	return list
}

func (c *Cloud) listScaleSetNICs(_, scaleSet string, _ *armnetwork.InterfacesClientListVirtualMachineScaleSetNetworkInterfacesOptions) (resp azfake.PagerResponder[armnetwork.InterfacesClientListVirtualMachineScaleSetNetworkInterfacesResponse]) {
	list := c.nicsOf(func(m *machine) bool { return strings.EqualFold(m.scaleSet, scaleSet) })
	if len(list) == 0 {
		c.request.notFound = true
		return resp
	}
	items, next := page(c, list)
	resp.AddPage(http.StatusOK, armnetwork.InterfacesClientListVirtualMachineScaleSetNetworkInterfacesResponse{InterfaceListResult: armnetwork.InterfaceListResult{Value: items, NextLink: next}}, nil)
	return resp
}

func (c *Cloud) listMachineNICs(_, scaleSet, name string, _ *armnetwork.InterfacesClientListVirtualMachineScaleSetVMNetworkInterfacesOptions) (resp azfake.PagerResponder[armnetwork.InterfacesClientListVirtualMachineScaleSetVMNetworkInterfacesResponse]) {
	wanted := c.find(scaleSet, name)
	if wanted == nil {
		c.request.notFound = true
		return resp
	}
	items, next := page(c, c.nicsOf(func(m *machine) bool { return m == wanted }))
	resp.AddPage(http.StatusOK, armnetwork.InterfacesClientListVirtualMachineScaleSetVMNetworkInterfacesResponse{InterfaceListResult: armnetwork.InterfaceListResult{Value: items, NextLink: next}}, nil)
	return resp
}

func (c *Cloud) listNICs(string, *armnetwork.InterfacesClientListOptions) (resp azfake.PagerResponder[armnetwork.InterfacesClientListResponse]) {
	items, next := page(c, c.nicsOf(func(m *machine) bool { return m.scaleSet == "" }))
	resp.AddPage(http.StatusOK, armnetwork.InterfacesClientListResponse{InterfaceListResult: armnetwork.InterfaceListResult{Value: items, NextLink: next}}, nil)
	return resp
}

// owner is the stand-alone machine of an interface.
func (c *Cloud) owner(name string) (*machine, *nic) {
	for _, m := range c.machines {
		if m.scaleSet == "" {
			if n := m.nicNamed(name); n != nil {
				return m, n
			}
		}
	}
	return nil, nil
}

func values(configs []*config) (list []config) {
	for _, a := range configs {
		list = append(list, *a)
	}
	return list
}

func (c *Cloud) getNIC(_ context.Context, _, name string, _ *armnetwork.InterfacesClientGetOptions) (resp azfake.Responder[armnetwork.InterfacesClientGetResponse], errs azfake.ErrorResponder) {
	m, n := c.owner(name)
	if m == nil {
		errs.SetResponseError(http.StatusNotFound, "NotFound")
		return resp, errs
	}
	resp.SetResponse(http.StatusOK, armnetwork.InterfacesClientGetResponse{Interface: *c.shown(m, n, values(n.configs))}, nil)
	return resp, errs
}

func (c *Cloud) updateNIC(_ context.Context, _, name string, body armnetwork.Interface, _ *armnetwork.InterfacesClientBeginCreateOrUpdateOptions) (resp azfake.PollerResponder[armnetwork.InterfacesClientCreateOrUpdateResponse], errs azfake.ErrorResponder) {
	m, n := c.owner(name)
	if status, code := c.refusal(m); code != "" {
		errs.SetResponseError(status, code)
		return resp, errs
	}
	var list []wanted
	for _, a := range body.Properties.IPConfigurations {
		w := wanted{name: *a.Name, subnet: *a.Properties.Subnet.ID}
		if a.Properties.PrivateIPAddress == nil && *a.Properties.PrivateIPAllocationMethod != armnetwork.IPAllocationMethodDynamic {
			errs.SetResponseError(http.StatusBadRequest, "PrivateIPAddressMissing")
			return resp, errs
		}
		for _, g := range a.Properties.ApplicationSecurityGroups {
			w.groups = append(w.groups, *g.ID)
		}
		if of := a.Properties.PublicIPAddress; of != nil {
			if w.public = c.publics[strings.ToLower(*of.ID)]; w.public == nil || w.public.config != "" && w.public.config != n.id+"/ipConfigurations/"+w.name {
				errs.SetResponseError(http.StatusBadRequest, "PublicIPAddressInUse")
				return resp, errs
			}
		}
		list = append(list, w)
	}
	id, code := c.change(m, n, list)
	if code != "" {
		errs.SetResponseError(http.StatusBadRequest, code)
		return resp, errs
	}
	c.request.operation = id
	resp.SetTerminalResponse(http.StatusOK, armnetwork.InterfacesClientCreateOrUpdateResponse{Interface: *c.shown(m, n, values(n.configs))}, nil)
	return resp, errs
}

// shown is a subnet as Network shows it.
func (s *subnet) shown() *armnetwork.Subnet {
	p := &armnetwork.SubnetPropertiesFormat{AddressPrefix: to.Ptr(s.cidr.String())}
	for k := range s.used {
		p.IPConfigurations = append(p.IPConfigurations, &armnetwork.IPConfiguration{ID: to.Ptr(s.id + "/ipConfigurations/" + strconv.Itoa(k))})
	}
	return &armnetwork.Subnet{ID: to.Ptr(s.id), Properties: p}
}

func (c *Cloud) listNetworks(*armnetwork.VirtualNetworksClientListAllOptions) (resp azfake.PagerResponder[armnetwork.VirtualNetworksClientListAllResponse]) {
	byNetwork := map[string]*armnetwork.VirtualNetwork{}
	var list []*armnetwork.VirtualNetwork
	for _, s := range c.subnets {
		id, _, _ := strings.Cut(s.id, "/subnets/")
		of := byNetwork[id]
		if of == nil {
			of = &armnetwork.VirtualNetwork{ID: to.Ptr(id), Properties: &armnetwork.VirtualNetworkPropertiesFormat{}}
			byNetwork[id] = of
			list = append(list, of)
		}
		of.Properties.Subnets = append(of.Properties.Subnets, s.shown())
	}
	slices.SortFunc(list, func(a, b *armnetwork.VirtualNetwork) int { return strings.Compare(*a.ID, *b.ID) })
	items, next := page(c, list)
	resp.AddPage(http.StatusOK, armnetwork.VirtualNetworksClientListAllResponse{VirtualNetworkListResult: armnetwork.VirtualNetworkListResult{Value: items, NextLink: next}}, nil)
	return resp
}
