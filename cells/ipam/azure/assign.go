// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
)

// errFixed is the error of what Azure's machines cannot do here. The engine does not ask for it.
var errFixed = errors.New("interfaces of Azure's machines are not attached by the operator, and their addresses are not released")

// Assign implements cloudipam.Provider: it adds ipConfigurations to the model of a machine, or to an interface of a stand-alone
// one, and waits until Azure has done so. What was changed by another writer meanwhile is not overwritten. While addresses of an
// earlier change are being added, whose outcome was not awaited to its end, the error asks for a pause.
func (p *provider) Assign(ctx context.Context, node *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate, count int) error {
	api, err := p.clients(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(i.Interfaces, func(of cloudipam.Interface) bool { return of.ID == to.Interface })
	if at < 0 {
		return fmt.Errorf("interface %s is not one of machine %s", to.Interface, i.ID)
	}
	n := nicOf(i.Interfaces[at])
	if p.config.isBeingAdded(node, n) {
		return pauseOf(i.ID)
	}
	if m, ok := parseMachine(to.Interface); ok && m.scaleSet != "" {
		return api.assignToMachine(ctx, m, n, to, count)
	}
	return api.assignToNIC(ctx, n, to, count)
}

// pauseOf is the error of a machine that Azure works on.
func pauseOf(id string) error {
	return &outside.ThrottledError{Server: "machine " + id, Until: time.Now().Add(pollInterval)}
}

// CreateInterface implements cloudipam.Provider.
func (p *provider) CreateInterface(context.Context, *cloudipam.Node, *cloudipam.Instance, map[string]cloudipam.Subnet, int) (cloudipam.Created, error) {
	return cloudipam.Created{}, errFixed
}

// Unassign implements cloudipam.Provider.
func (p *provider) Unassign(context.Context, *cloudipam.Node, *cloudipam.Instance, cloudipam.Surplus) error {
	return errFixed
}

func (a *clients) assignToMachine(ctx context.Context, m machine, n nic, to cloudipam.Candidate, count int) error {
	model, err := a.getMachine(ctx, m)
	if err != nil {
		return err
	}
	config := configOf(model, n.name)
	if config == nil {
		return &cloudipam.NodeError{Status: "unableToFindInterface", Text: fmt.Sprintf("interface %s does not exist in VM %s", n.name, m.name)}
	}
	of := config.Properties
	if count, err = notShown(n, len(of.IPConfigurations), count); err != nil {
		return err
	}
	of.IPConfigurations = append(of.IPConfigurations, newMachineConfigs(of.IPConfigurations, to.Subnet, count)...)
	return a.putMachine(ctx, m, model, assignCall(opUpdateMachine, to, count))
}

// putMachine writes the model of a machine, unless another writer has changed it since it was read, and waits until Azure has made the
// change.
func (a *clients) putMachine(ctx context.Context, m machine, model armcompute.VirtualMachineScaleSetVM, c outside.Call) error {
	if p := model.Properties; p != nil && p.StorageProfile != nil {
		p.StorageProfile.ImageReference = nil // a gallery of another subscription may not be readable
	}
	poller, err := a.machines.BeginUpdate(changing(ctx, c), a.group, m.scaleSet, m.name, model, &armcompute.VirtualMachineScaleSetVMsClientBeginUpdateOptions{IfMatch: model.Etag})
	return await(ctx, opUpdateMachine, poller, err)
}

// putNIC writes an interface, unless another writer has changed it since it was read, and waits until Azure has made the change.
func (a *clients) putNIC(ctx context.Context, id string, of armnetwork.Interface, c outside.Call) error {
	change := changing(ctx, c)
	if tag := deref(of.Etag); tag != "" {
		change = policy.WithHTTPHeader(change, http.Header{"If-Match": []string{tag}})
	}
	poller, err := a.nics.BeginCreateOrUpdate(change, groupOf(id), lastOf(id), of, nil)
	return await(ctx, opUpdateNIC, poller, err)
}

// getMachine reads the model of a machine.
func (a *clients) getMachine(ctx context.Context, m machine) (armcompute.VirtualMachineScaleSetVM, error) {
	got, err := a.machines.Get(reading(ctx, opGetMachine), a.group, m.scaleSet, m.name, nil)
	return got.VirtualMachineScaleSetVM, describe(opGetMachine, err)
}

// getNIC reads an interface of a stand-alone machine by its id.
func (a *clients) getNIC(ctx context.Context, id string) (armnetwork.Interface, error) {
	got, err := a.nics.Get(reading(ctx, opGetNIC), groupOf(id), lastOf(id), nil)
	switch {
	case err != nil:
		return got.Interface, describe(opGetNIC, err)
	case got.Properties == nil:
		return got.Interface, fmt.Errorf("interface %s has no properties", lastOf(id))
	}
	return got.Interface, nil
}

func (a *clients) assignToNIC(ctx context.Context, n nic, to cloudipam.Candidate, count int) error {
	of, err := a.getNIC(ctx, to.Interface)
	if err != nil {
		return err
	}
	if count, err = notShown(n, len(of.Properties.IPConfigurations), count); err != nil {
		return err
	}
	of.Properties.IPConfigurations = append(of.Properties.IPConfigurations, newNICConfigs(of.Properties.IPConfigurations, to.Subnet, count)...)
	return a.putNIC(ctx, to.Interface, of, assignCall(opUpdateNIC, to, count))
}

// await waits until Azure has made a change.
func await[T any](ctx context.Context, operation string, poller *runtime.Poller[T], err error) error {
	if err == nil {
		_, err = poller.PollUntilDone(reading(ctx, opWait), &runtime.PollUntilDoneOptions{Frequency: pollInterval})
	}
	return describe(operation, err)
}

// notShown is how many of count addresses to add, to an interface that has a number of ipConfigurations, where the instance was
// read with fewer: Azure shows for a while what was before a change.
func notShown(n nic, has, count int) (int, error) {
	count = min(count-max(0, has-n.all), perInterface-has)
	if count <= 0 {
		return 0, fmt.Errorf("interface %s has addresses that Azure does not list yet, or no room", n.name)
	}
	return count, nil
}

// assignCall is what the door is told. Names of ipConfigurations are random, and not part of it.
func assignCall(operation string, to cloudipam.Candidate, count int) outside.Call {
	request, _ := json.Marshal(map[string]any{"subnet": to.Subnet, "count": count})
	return outside.Call{Verb: "assign", Operation: operation, Resource: "addresses", Name: to.Interface, Request: request}
}

// configOf is the configuration of an interface in the model of a machine, nil if there is none.
func configOf(model armcompute.VirtualMachineScaleSetVM, name string) *armcompute.VirtualMachineScaleSetNetworkConfiguration {
	if model.Properties == nil || model.Properties.NetworkProfileConfiguration == nil {
		return nil
	}
	for _, c := range model.Properties.NetworkProfileConfiguration.NetworkInterfaceConfigurations {
		if c != nil && c.Properties != nil && strings.EqualFold(deref(c.Name), name) {
			return c
		}
	}
	return nil
}

// newMachineConfigs are further ipConfigurations with the application security groups of the first one.
func newMachineConfigs(has []*armcompute.VirtualMachineScaleSetIPConfiguration, subnet string, count int) (list []*armcompute.VirtualMachineScaleSetIPConfiguration) {
	taken := map[string]bool{}
	for _, c := range has {
		taken[deref(c.Name)] = true
	}
	var groups []*armcompute.SubResource
	if len(has) > 0 && has[0].Properties != nil {
		groups = has[0].Properties.ApplicationSecurityGroups
	}
	for range count {
		list = append(list, &armcompute.VirtualMachineScaleSetIPConfiguration{
			Name: newName(taken),
			Properties: &armcompute.VirtualMachineScaleSetIPConfigurationProperties{
				PrivateIPAddressVersion: to.Ptr(armcompute.IPVersionIPv4), Subnet: &armcompute.APIEntityReference{ID: &subnet}, ApplicationSecurityGroups: groups,
			},
		})
	}
	return list
}

// newNICConfigs are further ipConfigurations with the application security groups of the first one.
func newNICConfigs(has []*armnetwork.InterfaceIPConfiguration, subnet string, count int) (list []*armnetwork.InterfaceIPConfiguration) {
	taken := map[string]bool{}
	for _, c := range has {
		taken[deref(c.Name)] = true
	}
	var groups []*armnetwork.ApplicationSecurityGroup
	if len(has) > 0 && has[0].Properties != nil {
		groups = has[0].Properties.ApplicationSecurityGroups
	}
	for range count {
		list = append(list, &armnetwork.InterfaceIPConfiguration{
			Name: newName(taken),
			Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{
				PrivateIPAddressVersion: to.Ptr(armnetwork.IPVersionIPv4), PrivateIPAllocationMethod: to.Ptr(armnetwork.IPAllocationMethodDynamic),
				Subnet: &armnetwork.Subnet{ID: &subnet}, ApplicationSecurityGroups: groups,
			},
		})
	}
	return list
}

// newName is a name for an ipConfiguration that is not taken. It is, then.
func newName(taken map[string]bool) *string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	for {
		name := []byte(prefix + "12345678")
		for i := len(prefix); i < len(name); i++ {
			name[i] = letters[rand.IntN(len(letters))]
		}
		if text := string(name); !taken[text] {
			taken[text] = true
			return &text
		}
	}
}
