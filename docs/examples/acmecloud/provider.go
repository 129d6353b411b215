// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
)

// provider is Acme's cloud:
//
//	GET    /v1/instances?id=…                                all instances and subnets, or some instances
//	POST   /v1/instances/{id}/interfaces                     attaches an interface: {"count": addresses}
//	POST   /v1/instances/{id}/interfaces/{nic}/addresses     assigns addresses: {"count": addresses}
//	DELETE /v1/instances/{id}/interfaces/{nic}/addresses     removes addresses: {"addresses": […]}
type provider struct {
	api    string
	client http.Client
}

// region new

// newProvider has all requests pass the door: GET reads, everything else changes something.
func newProvider(c Config, door *outside.Door) cloudipam.Provider {
	return &provider{c.AcmeAPI, http.Client{Transport: door.Transport(http.DefaultTransport, nil)}}
}

// endregion

// instances is the answer to GET /v1/instances.
type instances struct {
	Instances []instance `json:"instances"`
	Subnets   []subnet   `json:"subnets"`
}

type instance struct {
	ID         string `json:"id"`
	Interfaces []nic  `json:"interfaces"`
	// Quotas of its type.
	MaxInterfaces int `json:"maxInterfaces"`
	MaxAddresses  int `json:"maxAddresses"` // of an interface
}

type nic struct {
	ID        string   `json:"id"`
	Subnet    string   `json:"subnet"`
	Addresses []string `json:"addresses"`
}

type subnet struct {
	ID   string `json:"id"`
	Free int    `json:"free"`
}

func (p *provider) Read(ctx context.Context) (*cloudipam.State, error) {
	var all instances
	if err := p.do(ctx, http.MethodGet, "/v1/instances", nil, &all); err != nil {
		return nil, err
	}
	s := &cloudipam.State{Instances: byID(all), Subnets: map[string]cloudipam.Subnet{}}
	for _, n := range all.Subnets {
		s.Subnets[n.ID] = cloudipam.Subnet{ID: n.ID, Free: n.Free}
	}
	return s, nil
}

func (p *provider) ReadInstances(ctx context.Context, ids []string) (map[string]*cloudipam.Instance, error) {
	var some instances
	err := p.do(ctx, http.MethodGet, "/v1/instances?"+url.Values{"id": ids}.Encode(), nil, &some)
	return byID(some), err
}

func byID(list instances) map[string]*cloudipam.Instance {
	all := map[string]*cloudipam.Instance{}
	for _, i := range list.Instances {
		of := &cloudipam.Instance{ID: i.ID, Detail: i}
		for _, n := range i.Interfaces {
			of.Interfaces = append(of.Interfaces, cloudipam.Interface{ID: n.ID, Subnet: n.Subnet, Addresses: n.Addresses})
		}
		all[i.ID] = of
	}
	return all
}

// quotas are those of the instance's type.
func quotas(i *cloudipam.Instance) instance { return i.Detail.(instance) }

func (p *provider) Limits(_ *cloudipam.Node, i *cloudipam.Instance) (cloudipam.Limits, error) {
	q := quotas(i)
	if q.MaxInterfaces == 0 || q.MaxAddresses == 0 {
		return cloudipam.Limits{}, &cloudipam.NodeError{Text: "Acme does not know the type of instance " + i.ID}
	}
	l := cloudipam.Limits{
		Addresses: q.MaxInterfaces * q.MaxAddresses, Capacity: q.MaxInterfaces * q.MaxAddresses,
		PreAllocate: 8, EmptySlots: max(0, q.MaxInterfaces-len(i.Interfaces)),
	}
	for _, n := range i.Interfaces {
		if len(n.Addresses) < q.MaxAddresses {
			l.Interfaces++
		}
	}
	return l, nil
}

func (p *provider) Addresses(_ *cloudipam.Node, i *cloudipam.Instance) map[string]cloudipam.Address {
	all := map[string]cloudipam.Address{}
	for _, n := range i.Interfaces {
		for _, a := range n.Addresses {
			all[a] = cloudipam.Address{Resource: n.ID}
		}
	}
	return all
}

func (p *provider) FreeInterface(_ *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	for _, n := range i.Interfaces {
		if count := min(quotas(i).MaxAddresses-len(n.Addresses), subnets[n.Subnet].Free); count > 0 {
			return cloudipam.Candidate{Interface: n.ID, Subnet: n.Subnet, Count: count}, true
		}
	}
	return cloudipam.Candidate{}, false
}

func (p *provider) Assign(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate, count int) error {
	return p.do(ctx, http.MethodPost, addressesOf(i, to.Interface), map[string]any{"count": count}, nil)
}

// CreateInterface attaches an interface in the subnet with most free addresses.
func (p *provider) CreateInterface(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet, count int) (cloudipam.Created, error) {
	var best cloudipam.Subnet
	for _, s := range subnets {
		if s.Free > best.Free || s.Free == best.Free && s.ID < best.ID {
			best = s
		}
	}
	made := cloudipam.Created{Subnet: best.ID, Count: min(count, best.Free, quotas(i).MaxAddresses)}
	if made.Count <= 0 {
		return made, &cloudipam.NodeError{Status: "unableToFindSubnet", Text: "no subnet of Acme's cloud has free addresses"}
	}
	var answer nic
	err := p.do(ctx, http.MethodPost, "/v1/instances/"+url.PathEscape(i.ID)+"/interfaces", map[string]any{"subnet": best.ID, "count": made.Count}, &answer)
	made.Interface = answer.ID
	return made, err
}

func (p *provider) Releasable(_ *cloudipam.Node, i *cloudipam.Instance, isUsed func(string) bool, count int) (best cloudipam.Surplus) {
	for _, n := range i.Interfaces {
		unused := slices.DeleteFunc(slices.Clone(n.Addresses), isUsed)
		if unused = unused[:min(count, len(unused))]; len(unused) > len(best.Addresses) {
			best = cloudipam.Surplus{Interface: n.ID, Subnet: n.Subnet, Addresses: unused}
		}
	}
	return best
}

func (p *provider) Unassign(ctx context.Context, _ *cloudipam.Node, i *cloudipam.Instance, from cloudipam.Surplus) error {
	return p.do(ctx, http.MethodDelete, addressesOf(i, from.Interface), map[string]any{"addresses": from.Addresses}, nil)
}

// SetStatus sets the interfaces where agents in this mode read them.
func (p *provider) SetStatus(_ *cloudipam.Node, i *cloudipam.Instance, status *v2.CiliumNodeStatus) {
	status.AlibabaCloud.ENIs = nil
	if i == nil {
		return
	}
	status.AlibabaCloud.ENIs = map[string]v2.AlibabaCloudENI{}
	for _, n := range i.Interfaces {
		eni := v2.AlibabaCloudENI{NetworkInterfaceID: n.ID, InstanceID: i.ID}
		for _, a := range n.Addresses {
			eni.PrivateIPSets = append(eni.PrivateIPSets, v2.AlibabaCloudPrivateIP{PrivateIPAddress: a})
		}
		status.AlibabaCloud.ENIs[n.ID] = eni
	}
}

func addressesOf(i *cloudipam.Instance, nic string) string {
	return "/v1/instances/" + url.PathEscape(i.ID) + "/interfaces/" + url.PathEscape(nic) + "/addresses"
}

// maxBody is more than an answer has.
const maxBody = 16 << 20

// do sends a request and decodes its answer, if answer is not nil.
func (p *provider) do(ctx context.Context, method, path string, request, answer any) error {
	var body io.Reader
	if request != nil {
		text, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.api+path, body)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: Acme answers %s", method, path, resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(answer)
}
