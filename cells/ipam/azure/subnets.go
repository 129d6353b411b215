// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// readSubnets reads the subnets of all virtual networks that the operator may list, and one by one those that interfaces are in and
// the list does not have. One that cannot be read costs its range and its free addresses, and not the read. The list is asked for
// again by the next complete read.
func (p *provider) readSubnets(ctx context.Context, api *clients, nics []*armnetwork.Interface) (subnets, error) {
	networks, err := api.listNetworks(ctx)
	if err != nil && statusOf(err) != http.StatusForbidden {
		return nil, err
	}
	p.reportList(err == nil)
	known, unreadable := subnetsOf(networks), map[string]string{}
	if err := p.addSubnets(ctx, api, nics, known, unreadable); err != nil {
		return nil, err
	}
	p.reportUnreadable(unreadable)
	p.subnets.Store(&known)
	return known, nil
}

// knownSubnets are the subnets of the last complete read, and those that interfaces are in and that are newer.
func (p *provider) knownSubnets(ctx context.Context, api *clients, nics []*armnetwork.Interface) (subnets, error) {
	last := p.subnets.Load()
	switch {
	case last == nil:
		return p.readSubnets(ctx, api, nics)
	case len(missingSubnets(nics, *last)) == 0:
		return *last, nil
	}
	known := maps.Clone(*last)
	if err := p.addSubnets(ctx, api, nics, known, map[string]string{}); err != nil {
		return nil, err
	}
	p.subnets.Store(&known)
	return known, nil
}

// addSubnets reads the subnets that interfaces are in and that are not known, each alone. unreadable gets the reasons of those that
// cannot be read.
func (p *provider) addSubnets(ctx context.Context, api *clients, nics []*armnetwork.Interface, known subnets, unreadable map[string]string) error {
	for _, id := range missingSubnets(nics, known) {
		s, err := api.getSubnet(ctx, id)
		key := strings.ToLower(id)
		switch {
		case err == nil && s.Properties != nil:
			known[key] = subnetFrom(id, s.Properties)
		case err != nil && !isOfSubnet(err):
			return err
		default:
			unreadable[id] = whyUnread(err)
			known[key] = p.lastRead(id, err)
		}
	}
	return nil
}

// maxMissed is for how many complete reads, one a minute, what was read before of a subnet counts.
const maxMissed = 10

// lastRead is what was read before of a subnet that cannot be read, unless that is long ago, or it does not exist.
func (p *provider) lastRead(id string, err error) cloudipam.Subnet {
	unread := cloudipam.Subnet{ID: id, Detail: vnetSubnet{isUnread: true}}
	last := p.subnets.Load()
	if last == nil || statusOf(err) == http.StatusNotFound {
		return unread
	}
	was, ok := (*last)[strings.ToLower(id)]
	of, _ := was.Detail.(vnetSubnet)
	if of.missed++; !ok || of.missed > maxMissed {
		return unread
	}
	was.Detail = of
	return was
}

// isOfSubnet reports whether an error is about one subnet. Others, such as those of credentials, and a pause that Azure asks for, are
// about all calls.
func isOfSubnet(err error) bool {
	switch statusOf(err) {
	case 0, http.StatusUnauthorized, http.StatusTooManyRequests:
		return false
	}
	return true
}

// whyUnread is why a subnet cannot be read, as health says it: without ids of requests and times.
func whyUnread(err error) string {
	switch status := statusOf(err); status {
	case 0:
		return "the answer has no properties"
	case http.StatusForbidden:
		return "the operator's identity lacks " + permissions[opSubnet]
	case http.StatusNotFound:
		return "it does not exist"
	default:
		return fmt.Sprintf("Azure answers %d %s", status, http.StatusText(status))
	}
}

// missingSubnets are the ids of the subnets that interfaces are in and that are not known, in order.
func missingSubnets(nics []*armnetwork.Interface, known subnets) (ids []string) {
	seen := map[string]bool{}
	for _, n := range nics {
		if n == nil || n.Properties == nil || n.Properties.VirtualMachine == nil {
			continue
		}
		for _, c := range n.Properties.IPConfigurations {
			if c == nil || c.Properties == nil || c.Properties.Subnet == nil {
				continue
			}
			id := deref(c.Properties.Subnet.ID)
			key := strings.ToLower(id)
			if _, ok := known[key]; !ok && id != "" && !seen[key] {
				seen[key] = true
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// reportList logs whether virtual networks are listed, when that changes.
func (p *provider) reportList(isListed bool) {
	p.mu.Lock()
	was := p.isListed
	p.isListed = isListed
	p.mu.Unlock()
	switch {
	case was == isListed:
	case isListed:
		p.Log.Info("virtual networks are listed again")
	default:
		p.Log.Info("virtual networks may not be listed: only subnets that interfaces are in are read, and no other one is used when one is full", "permission", permissions[opNetworks])
	}
}

// reportUnreadable reports subnets that cannot be read, and logs it when that changes.
func (p *provider) reportUnreadable(all map[string]string) {
	text := ""
	if len(all) > 0 {
		first := slices.Min(slices.Collect(maps.Keys(all)))
		text = fmt.Sprintf("%d subnets of interfaces cannot be read, %s among them: %s", len(all), first, all[first])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == p.unreadable {
		return
	}
	p.unreadable = text
	h := p.Health.Child("subnets")
	if text == "" {
		h.OK("")
		return
	}
	p.Log.Warn("subnets cannot be read: their machines have no range in the status, and get no more addresses", "reason", text)
	h.Degraded(text, nil)
}
