// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
)

var _ cloudipam.StaticAddresser = (*provider)(nil)

// StaticIP implements cloudipam.StaticAddresser: reads of Azure show of a public address no more than its id.
func (p *provider) StaticIP(*cloudipam.Node, *cloudipam.Instance) string { return "" }

// AssignStaticIP implements cloudipam.StaticAddresser: the primary ipConfiguration of the primary interface gets a public address of a
// prefix with the tags. One that it has is returned. One that has failed is removed, and made again.
func (p *provider) AssignStaticIP(ctx context.Context, node *cloudipam.Node, i *cloudipam.Instance) (address string, err error) {
	api, err := p.clients(ctx)
	if err != nil {
		return "", err
	}
	if len(i.Interfaces) == 0 {
		return "", fmt.Errorf("machine %s has no interface for a public address", i.ID)
	}
	first := i.Interfaces[0]
	s := staticRun{p: p, api: api, id: i.ID, nic: first.ID, tags: node.Spec.IPAM.StaticIPTags}
	if m, ok := parseMachine(first.ID); ok && m.scaleSet != "" {
		return s.ofMachine(ctx, m, nicOf(first).name)
	}
	return s.ofNIC(ctx)
}

// staticRun gives one machine a public address.
type staticRun struct {
	p    *provider
	api  *clients
	id   string // of the machine
	nic  string // the id of its primary interface
	tags map[string]string
}

// ofMachine gives a machine of a scale set a public address, which is part of its model.
func (s staticRun) ofMachine(ctx context.Context, m machine, nic string) (string, error) {
	c, address, err := s.ofModel(ctx, m, nic)
	if err != nil || address != "" {
		return address, err
	}
	prefix, claimed, err := s.choose(ctx, deref(c.model.Location), s.nic)
	if err != nil {
		return "", err
	}
	defer s.p.claims.end(claimed)
	c.set(deref(prefix.ID))
	if err := s.api.putMachine(ctx, m, c.model, s.call("assign", opUpdateMachine, s.nic, deref(prefix.ID))); err != nil {
		s.leaveOut(deref(prefix.ID), err)
		if statusOf(err) == http.StatusOK { // the operation has failed: the machine cannot be changed while its model asks for what it does not get
			if _, _, undo := s.ofModel(ctx, m, nic); undo != nil {
				s.p.Log.Warn("removing a public address that has failed did not succeed, retrying", "machine", s.id, "error", undo)
			}
		}
		return "", err
	}
	list, err := s.api.listMachinePublics(ctx, m, c.nic, deref(c.ip.Name))
	if address = addressIn(list); err == nil && address == "" {
		return "", pauseOf(s.id) // it is shown in a moment
	}
	return address, err
}

// ofModel returns the public address that a machine has, "" for none. One that has failed is removed from the model.
func (s staticRun) ofModel(ctx context.Context, m machine, nic string) (c machineConfig, address string, err error) {
	if c, err = s.read(ctx, m, nic); err != nil {
		return c, "", err
	}
	has := c.public()
	if has != nil {
		list, err := s.api.listMachinePublics(ctx, m, c.nic, deref(c.ip.Name))
		if address = addressIn(list); err != nil || address != "" {
			return c, address, err
		}
	}
	switch {
	case c.isBusy():
		return c, "", pauseOf(s.id)
	case has == nil:
		return c, "", nil
	case !c.hasFailed():
		return c, "", fmt.Errorf("machine %s has the public address %s, which Azure does not show yet", s.id, deref(has.Name))
	case !isOurs(deref(has.Name)):
		return c, "", notOurs(deref(has.Name))
	}
	c.remove()
	if err := s.api.putMachine(ctx, m, c.model, s.call("remove", opUpdateMachine, s.nic, "")); err != nil {
		return c, "", err
	}
	c, err = s.read(ctx, m, nic)
	return c, "", err
}

// read reads the primary ipConfiguration in the model of a machine.
func (s staticRun) read(ctx context.Context, m machine, nic string) (machineConfig, error) {
	model, err := s.api.getMachine(ctx, m)
	if err != nil {
		return machineConfig{}, err
	}
	c, ok := primaryOf(model, nic)
	if !ok {
		return c, fmt.Errorf("machine %s has no primary ipConfiguration", s.id)
	}
	return c, nil
}

// notOurs is the error of a public address that has no address, and that the operator has not made.
func notOurs(name string) error {
	return &cloudipam.NodeError{Status: "unableToAssignStaticIP", Text: fmt.Sprintf("the primary ipConfiguration has the public address %s, which has no address: repair or remove it", name)}
}

// choose chooses the prefix of a new public address, whose id holder begins.
func (s staticRun) choose(ctx context.Context, region, holder string) (*armnetwork.PublicIPPrefix, *claim, error) {
	asked := time.Now()
	list, err := s.api.listPrefixes(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.p.claims.choose(list, wish{s.api.group, region, s.tags}, holder, asked, time.Now())
}

// leaveOut leaves a prefix out for a while that has refused an address, whatever it shows.
func (s staticRun) leaveOut(prefix string, err error) {
	if isPrefixFull(codeOf(err)) {
		s.p.claims.refuse(prefix, time.Now())
	}
}

// call is what the door gets of a change.
func (s staticRun) call(verb, operation, name, prefix string) outside.Call {
	request, _ := json.Marshal(map[string]any{"machine": s.id, "prefix": prefix})
	return outside.Call{Verb: verb, Operation: operation, Resource: "publicaddresses", Name: name, Request: request}
}

// ofNIC gives an interface of a stand-alone machine a public address, which is a resource of its own.
func (s staticRun) ofNIC(ctx context.Context) (string, error) {
	of, ip, address, err := s.ofInterface(ctx)
	if err != nil || address != "" {
		return address, err
	}
	public, err := s.resource(ctx, deref(of.Location))
	if err != nil {
		return "", err
	}
	ip.Properties.PublicIPAddress = &armnetwork.PublicIPAddress{
		ID: public.ID, Properties: &armnetwork.PublicIPAddressPropertiesFormat{DeleteOption: to.Ptr(armnetwork.DeleteOptionsDelete)}, // with the machine
	}
	if err := s.api.putNIC(ctx, s.nic, of, s.call("assign", opUpdateNIC, s.nic, deref(public.ID))); err != nil {
		return "", err
	}
	return deref(public.Properties.IPAddress), nil
}

// ofInterface returns the public address that an interface has, "" for none. One that has failed is taken off it, and deleted.
func (s staticRun) ofInterface(ctx context.Context) (of armnetwork.Interface, ip *armnetwork.InterfaceIPConfiguration, address string, err error) {
	if of, err = s.api.getNIC(ctx, s.nic); err != nil {
		return of, nil, "", err
	}
	ip = primaryOfNIC(of)
	switch {
	case ip == nil:
		return of, nil, "", fmt.Errorf("interface %s has no primary ipConfiguration", lastOf(s.nic))
	case ip.Properties.PublicIPAddress == nil && isWorking(string(deref(of.Properties.ProvisioningState))):
		return of, nil, "", pauseOf(s.id)
	case ip.Properties.PublicIPAddress == nil:
		return of, ip, "", nil
	}
	id := deref(ip.Properties.PublicIPAddress.ID)
	public, err := s.api.getPublic(ctx, id)
	if err != nil {
		return of, nil, "", err
	}
	if address = addressIn([]*armnetwork.PublicIPAddress{public}); address != "" {
		return of, ip, address, nil
	}
	if err := s.mayBeMadeAgain(id, public); err != nil {
		return of, nil, "", err
	}
	ip.Properties.PublicIPAddress = nil
	if err := s.api.putNIC(ctx, s.nic, of, s.call("remove", opUpdateNIC, s.nic, id)); err != nil {
		return of, nil, "", err
	}
	if of, err = s.api.getNIC(ctx, s.nic); err != nil {
		return of, nil, "", err
	}
	if ip = primaryOfNIC(of); ip == nil {
		return of, nil, "", fmt.Errorf("interface %s has no primary ipConfiguration any more", lastOf(s.nic))
	}
	return of, ip, "", nil
}

// mayBeMadeAgain is nil for a public address without an address that has failed, and is the operator's. public is nil for one that does
// not exist.
func (s staticRun) mayBeMadeAgain(id string, public *armnetwork.PublicIPAddress) error {
	state := ""
	if public != nil && public.Properties != nil {
		state = string(deref(public.Properties.ProvisioningState))
	}
	switch {
	case isWorking(state):
		return pauseOf(s.id)
	case !isOurs(lastOf(id)):
		return notOurs(lastOf(id))
	}
	return nil
}

// resource is the public address that is made for an interface. One of before a crash is used, and one that has failed is deleted.
func (s staticRun) resource(ctx context.Context, region string) (*armnetwork.PublicIPAddress, error) {
	id := "/subscriptions/" + s.api.subscription + "/resourceGroups/" + groupOf(s.nic) + "/providers/Microsoft.Network/publicIPAddresses/" + publicNameOf(lastOf(s.nic))
	has, err := s.api.getPublic(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case has == nil:
		return s.create(ctx, id, region)
	case addressIn([]*armnetwork.PublicIPAddress{has}) != "":
		return has, nil
	}
	if err := s.mayBeMadeAgain(id, has); err != nil {
		return nil, err
	}
	poller, err := s.api.publics.BeginDelete(changing(ctx, s.call("delete", opDeletePublic, id, "")), groupOf(id), lastOf(id), nil)
	if err := await(ctx, opDeletePublic, poller, err); err != nil {
		return nil, err
	}
	return s.create(ctx, id, region)
}

// create makes a public address of a prefix with the tags.
func (s staticRun) create(ctx context.Context, id, region string) (*armnetwork.PublicIPAddress, error) {
	prefix, claimed, err := s.choose(ctx, region, id)
	if err != nil {
		return nil, err
	}
	defer s.p.claims.end(claimed)
	change := changing(ctx, s.call("create", opCreatePublic, id, deref(prefix.ID)))
	poller, err := s.api.publics.BeginCreateOrUpdate(change, groupOf(id), lastOf(id), newPublic(prefix, region), nil)
	if err := await(ctx, opCreatePublic, poller, err); err != nil {
		s.leaveOut(deref(prefix.ID), err)
		return nil, err
	}
	made, err := s.api.getPublic(ctx, id)
	if err == nil && addressIn([]*armnetwork.PublicIPAddress{made}) == "" {
		return nil, pauseOf(s.id) // it is shown in a moment
	}
	return made, err
}
