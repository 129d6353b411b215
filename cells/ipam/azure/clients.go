// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"github.com/skep-operator/skep/resources/outside"
)

// Operations, in the words of the original's metrics, from 1.18 on, where it has them.
const (
	opScaleSets       = "VirtualMachineScaleSets.List"
	opScaleSetNICs    = "Interfaces.ListVirtualMachineScaleSetNetworkInterfaces"
	opMachineNICs     = "Interfaces.ListVirtualMachineScaleSetVMNetworkInterfaces"
	opNICs            = "Interfaces.List"
	opNetworks        = "VirtualNetworks.ListAll"
	opSubnet          = "Subnets.Get"
	opGetMachine      = "VirtualMachineScaleSetVMs.Get"
	opUpdateMachine   = "VirtualMachineScaleSetVMs.Update"
	opGetNIC          = "Interfaces.Get"
	opUpdateNIC       = "Interfaces.CreateOrUpdate"
	opPrefixes        = "PublicIPPrefixes.List"
	opMachinePublics  = "PublicIPAddresses.ListVirtualMachineScaleSetVMPublicIPAddresses"
	opGetPublic       = "PublicIPAddresses.Get"
	opCreatePublic    = "PublicIPAddresses.CreateOrUpdate"
	opDeletePublic    = "PublicIPAddresses.Delete"
	opWait            = "Operations.Get"
	opToken           = "Tokens.Get"
	pollInterval      = 5 * time.Second // where Azure does not say when to ask again
	longestRetryDelay = 10 * time.Second
	firstRetryDelay   = 250 * time.Millisecond
	retries           = 2
	applicationID     = "skep"
)

// clients are those of the SDK.
type clients struct {
	settings
	identity  credential
	scaleSets *armcompute.VirtualMachineScaleSetsClient
	machines  *armcompute.VirtualMachineScaleSetVMsClient
	nics      *armnetwork.InterfacesClient
	networks  *armnetwork.VirtualNetworksClient
	prefixes  *armnetwork.PublicIPPrefixesClient
	publics   *armnetwork.PublicIPAddressesClient
	// subnetsIn returns the client of a subscription: a subnet can be one that another subscription shares.
	subnetsIn func(subscription string) (*armnetwork.SubnetsClient, error)
}

// newClients returns clients whose requests pass the door, each attempt of its own. 429 is not retried by the SDK: the engine
// keeps the pause.
func newClients(s settings, c Config, to pass) (*clients, error) {
	options := policy.ClientOptions{
		Cloud: s.cloud, Transport: to, Telemetry: policy.TelemetryOptions{ApplicationID: applicationID},
		Retry: policy.RetryOptions{
			MaxRetries: retries, RetryDelay: firstRetryDelay, MaxRetryDelay: longestRetryDelay,
			StatusCodes: []int{http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout},
		},
	}
	forTokens := options
	to.operation = opToken
	forTokens.Transport = to
	identity, err := newCredential(c, forTokens)
	if err != nil {
		return nil, err
	}
	arms := &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}
	compute, err := armcompute.NewClientFactory(s.subscription, identity, arms)
	if err != nil {
		return nil, err
	}
	network, err := armnetwork.NewClientFactory(s.subscription, identity, arms)
	if err != nil {
		return nil, err
	}
	return &clients{
		settings: s, identity: identity, scaleSets: compute.NewVirtualMachineScaleSetsClient(), machines: compute.NewVirtualMachineScaleSetVMsClient(),
		nics: network.NewInterfacesClient(), networks: network.NewVirtualNetworksClient(),
		prefixes: network.NewPublicIPPrefixesClient(), publics: network.NewPublicIPAddressesClient(),
		subnetsIn: func(subscription string) (*armnetwork.SubnetsClient, error) {
			return armnetwork.NewSubnetsClient(subscription, identity, arms)
		},
	}, nil
}

// all returns the items of all pages.
func all[Page, Item any](ctx context.Context, operation string, pager *runtime.Pager[Page], items func(Page) []*Item) (list []*Item, err error) {
	ctx = reading(ctx, operation)
	for pages := 1; pager.More(); pages++ {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, describe(operation, err)
		}
		list = append(list, items(page)...)
		if err := outside.CheckList(operation, pages, len(list)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (a *clients) listScaleSets(ctx context.Context) ([]*armcompute.VirtualMachineScaleSet, error) {
	return all(ctx, opScaleSets, a.scaleSets.NewListPager(a.group, nil), func(p armcompute.VirtualMachineScaleSetsClientListResponse) []*armcompute.VirtualMachineScaleSet {
		return p.Value
	})
}

// listScaleSetNICs lists those of all machines of a scale set. One without machines may not be found.
func (a *clients) listScaleSetNICs(ctx context.Context, name string) ([]*armnetwork.Interface, error) {
	list, err := all(ctx, opScaleSetNICs, a.nics.NewListVirtualMachineScaleSetNetworkInterfacesPager(a.group, name, nil),
		func(p armnetwork.InterfacesClientListVirtualMachineScaleSetNetworkInterfacesResponse) []*armnetwork.Interface {
			return p.Value
		})
	return list, unlessNotFound(err)
}

// listMachineNICs lists those of a machine of a scale set, none if it does not exist.
func (a *clients) listMachineNICs(ctx context.Context, scaleSet, machine string) ([]*armnetwork.Interface, error) {
	list, err := all(ctx, opMachineNICs, a.nics.NewListVirtualMachineScaleSetVMNetworkInterfacesPager(a.group, scaleSet, machine, nil),
		func(p armnetwork.InterfacesClientListVirtualMachineScaleSetVMNetworkInterfacesResponse) []*armnetwork.Interface {
			return p.Value
		})
	return list, unlessNotFound(err)
}

// listNICs lists those of stand-alone machines.
func (a *clients) listNICs(ctx context.Context) ([]*armnetwork.Interface, error) {
	return all(ctx, opNICs, a.nics.NewListPager(a.group, nil), func(p armnetwork.InterfacesClientListResponse) []*armnetwork.Interface { return p.Value })
}

func (a *clients) listNetworks(ctx context.Context) ([]*armnetwork.VirtualNetwork, error) {
	return all(ctx, opNetworks, a.networks.NewListAllPager(nil), func(p armnetwork.VirtualNetworksClientListAllResponse) []*armnetwork.VirtualNetwork { return p.Value })
}

// getSubnet reads one subnet, by its id.
func (a *clients) getSubnet(ctx context.Context, id string) (*armnetwork.Subnet, error) {
	of, ok := parseSubnet(id)
	if !ok {
		return nil, &refusal{operation: opSubnet, status: http.StatusNotFound, code: "no id of a subnet"}
	}
	client, err := a.subnetsIn(of.subscription)
	if err != nil {
		return nil, err
	}
	got, err := client.Get(reading(ctx, opSubnet), of.group, of.network, of.name, nil)
	if err != nil {
		return nil, describe(opSubnet, err)
	}
	return &got.Subnet, nil
}

// listPrefixes lists the public IP prefixes of the resource group.
func (a *clients) listPrefixes(ctx context.Context) ([]*armnetwork.PublicIPPrefix, error) {
	return all(ctx, opPrefixes, a.prefixes.NewListPager(a.group, nil), func(p armnetwork.PublicIPPrefixesClientListResponse) []*armnetwork.PublicIPPrefix { return p.Value })
}

// listMachinePublics lists the public addresses of an ipConfiguration of a machine of a scale set.
func (a *clients) listMachinePublics(ctx context.Context, m machine, nic, config string) ([]*armnetwork.PublicIPAddress, error) {
	list, err := all(ctx, opMachinePublics, a.publics.NewListVirtualMachineScaleSetVMPublicIPAddressesPager(a.group, m.scaleSet, m.name, nic, config, nil),
		func(p armnetwork.PublicIPAddressesClientListVirtualMachineScaleSetVMPublicIPAddressesResponse) []*armnetwork.PublicIPAddress {
			return p.Value
		})
	return list, unlessNotFound(err)
}

// getPublic reads a public address by its id, nil if it does not exist.
func (a *clients) getPublic(ctx context.Context, id string) (*armnetwork.PublicIPAddress, error) {
	got, err := a.publics.Get(reading(ctx, opGetPublic), groupOf(id), lastOf(id), nil)
	if err != nil {
		return nil, unlessNotFound(describe(opGetPublic, err))
	}
	return &got.PublicIPAddress, nil
}
