// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ecstest

import (
	"net/http"
	"slices"
)

// Bounds of changes.
const (
	maxSecondary  = 49 // of a request
	maxUnassigned = 10
)

// repeated is what was done for the client token of a request, which is not done again.
func (c *Cloud) repeated(r request) (of done, is bool, err *refusal) {
	of, is = c.tokens[r.text("ClientToken")]
	if is && of.parameters != r.values.Encode() {
		return of, false, &refusal{http.StatusBadRequest, "IdempotentParameterMismatch", "The request uses the same client token as a previous one, with other parameters."}
	}
	return of, is, nil
}

func (c *Cloud) carriedOut(r request, id string) {
	if token := r.text("ClientToken"); token != "" {
		c.tokens[token] = done{r.values.Encode(), id}
	}
}

func (c *Cloud) createNetworkInterface(r request) (map[string]any, *refusal) {
	of, is, err := c.repeated(r)
	if err != nil {
		return nil, err
	}
	if is && c.enis[of.id] != nil {
		return object{"NetworkInterfaceId": of.id, "Status": available}, nil
	}
	in, groups := c.vSwitches[r.text("VSwitchId")], r.list("SecurityGroupIds")
	secondary, err := r.number("SecondaryPrivateIpAddressCount", 0, maxSecondary)
	switch {
	case err != nil:
		return nil, err
	case in == nil:
		return nil, notFound("InvalidVSwitchId.NotFound", r.text("VSwitchId"))
	case len(groups) == 0:
		return nil, &refusal{http.StatusBadRequest, "MissingParameter", "The input parameter SecurityGroupId is mandatory."}
	case c.MaxInterfaces > 0 && len(c.enis) >= c.MaxInterfaces:
		return nil, forbidden("MaxEniCountExceeded")
	case in.free() < 1+secondary:
		return nil, forbidden("InvalidVSwitchId.IpNotEnough")
	}
	for _, id := range groups {
		if g := c.groups[id]; g == nil || g.vpc != in.vpc {
			return nil, notFound("InvalidSecurityGroupId.NotFound", id)
		}
	}
	e := c.newENI(in, groups, secondary)
	e.tags, e.description = r.tags(), r.text("Description")
	c.put(e)
	c.carriedOut(r, e.id)
	return object{"NetworkInterfaceId": e.id, "Status": available}, nil
}

func (c *Cloud) attachNetworkInterface(r request) (map[string]any, *refusal) {
	e, i := c.enis[r.text("NetworkInterfaceId")], c.instances[r.text("InstanceId")]
	switch {
	case i == nil:
		return nil, notFound("InvalidEcsId.NotFound", r.text("InstanceId"))
	case e == nil:
		return nil, notFound("InvalidEniId.NotFound", r.text("NetworkInterfaceId"))
	case e.status != available:
		return nil, &refusal{http.StatusBadRequest, "InvalidOperation.InvalidEniState", "The operation is not allowed in the current ENI state."}
	case i.state != "Running" && i.state != "Stopped":
		return nil, &refusal{http.StatusBadRequest, "InvalidOperation.InvalidEcsState", "The operation is not allowed in the current ECS state."}
	case c.zoneOf(e.vSwitch) != c.zoneOf(i.vSwitch):
		return nil, forbidden("InvalidOperation.AvailabilityZoneMismatch")
	}
	attached := 0
	for _, other := range c.enis {
		if other.instance == i.id {
			attached++
		}
	}
	switch of := c.types[i.kind]; {
	case attached >= of.Adapters:
		return nil, forbidden("EniPerInstanceLimitExceeded")
	case 1+len(e.secondary) > of.IPv4:
		return nil, forbidden("InvalidOperation.Ipv4CountExceeded")
	}
	next := *e
	next.instance, next.status, next.attachedAt = i.id, attaching, c.requests+c.Settle
	if r.fault.Stuck {
		next.attachedAt = 1 << 30
	}
	c.put(&next)
	return object{}, nil
}

func (c *Cloud) zoneOf(id string) string {
	if s := c.vSwitches[id]; s != nil {
		return s.zone
	}
	return c.Zone
}

// Detach ends an attachment that is stuck.
func (c *Cloud) Detach(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := *c.enis[id]
	e.status, e.instance = available, ""
	c.put(&e)
}

func (c *Cloud) deleteNetworkInterface(r request) (map[string]any, *refusal) {
	e := c.enis[r.text("NetworkInterfaceId")]
	switch {
	case e == nil:
		return nil, notFound("InvalidEniId.NotFound", r.text("NetworkInterfaceId"))
	case e.status != available:
		return nil, &refusal{http.StatusBadRequest, "InvalidOperation.InvalidEniState", "The operation is not allowed in the current ENI state."}
	}
	c.drop(e)
	return object{}, nil
}

func (c *Cloud) assignPrivateIPAddresses(r request) (map[string]any, *refusal) {
	e := c.enis[r.text("NetworkInterfaceId")]
	count, err := r.number("SecondaryPrivateIpAddressCount", 0, maxSecondary)
	switch {
	case err != nil:
		return nil, err
	case count == 0:
		return nil, &refusal{http.StatusBadRequest, "MissingParameter", "A number of addresses is mandatory."}
	case e == nil:
		return nil, notFound("InvalidEniId.NotFound", r.text("NetworkInterfaceId"))
	case c.statusOf(e) != available && c.statusOf(e) != inUse:
		return nil, &refusal{http.StatusBadRequest, "InvalidOperation.InvalidEniState", "The operation is not allowed in the current ENI state."}
	}
	in := c.vSwitches[e.vSwitch]
	switch i := c.instances[e.instance]; {
	case in == nil:
		return nil, notFound("InvalidVSwitchId.NotFound", e.vSwitch)
	case i != nil && 1+len(e.secondary)+count > c.types[i.kind].IPv4:
		return nil, forbidden("InvalidOperation.Ipv4CountExceeded")
	case in.free() < count:
		return nil, forbidden("InvalidVSwitchId.IpNotEnough")
	}
	if r.fault.Partial {
		count = 1
	}
	next, list := *e, []string{}
	for range count {
		list = append(list, in.take())
	}
	next.secondary = slices.Concat(e.secondary, list)
	c.put(&next)
	if r.fault.Partial {
		return nil, &refusal{http.StatusInternalServerError, "InternalError", "The request processing has failed due to some unknown error."}
	}
	return object{"AssignedPrivateIpAddressesSet": object{"NetworkInterfaceId": e.id, "PrivateIpSet": object{"PrivateIpAddress": list}}}, nil
}

func (c *Cloud) unassignPrivateIPAddresses(r request) (map[string]any, *refusal) {
	e, addresses := c.enis[r.text("NetworkInterfaceId")], r.list("PrivateIpAddress")
	switch {
	case e == nil:
		return nil, notFound("InvalidEniId.NotFound", r.text("NetworkInterfaceId"))
	case len(addresses) == 0 || len(addresses) > maxUnassigned:
		return nil, invalid("PrivateIpAddress.N")
	}
	for _, a := range addresses {
		if !slices.Contains(e.secondary, a) {
			return nil, forbidden("InvalidIp.IpUnassigned")
		}
	}
	next := *e
	next.secondary = slices.DeleteFunc(slices.Clone(e.secondary), func(a string) bool { return slices.Contains(addresses, a) })
	c.put(&next)
	if s := c.vSwitches[e.vSwitch]; s != nil {
		s.release(addresses...)
	}
	return object{}, nil
}
