// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import (
	"fmt"
	"slices"
)

// elasticAddress is a public address of the account.
type elasticAddress struct {
	allocation, public string
	tags               map[string]string
	association        string // "" for none
	eni, private       string // that it is associated with
}

// AllocateAddress adds an elastic address.
func (c *Cloud) AllocateAddress(allocation, public string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elastic[allocation] = &elasticAddress{allocation: allocation, public: public, tags: tags}
}

// AssociateAddress associates an elastic address with an interface.
func (c *Cloud) AssociateAddress(allocation, eni string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.associate(c.elastic[allocation], c.enis[eni], false); err != nil {
		return err
	}
	return nil
}

// associate gives the primary address of an interface an elastic address.
func (c *Cloud) associate(a *elasticAddress, e *eni, again bool) *Error {
	if a.association != "" && a.eni == e.id {
		return nil
	}
	if a.association != "" && !again {
		return &Error{Code: "Resource.AlreadyAssociated", Message: fmt.Sprintf("resource %s is already associated with associate-id %s", a.allocation, a.association)}
	}
	for _, of := range c.elastic {
		if of.association == "" || of.private != e.primary {
			continue
		}
		if !again {
			return &Error{Code: "Resource.AlreadyAssociated", Message: fmt.Sprintf("resource %s is already associated with associate-id %s", e.id, of.association)}
		}
		c.disassociateAddress(of.private)
	}
	if a.association != "" {
		c.disassociateAddress(a.private)
	}
	a.association, a.eni, a.private = c.next("eipassoc"), e.id, e.primary
	c.public[e.primary] = a.public
	return nil
}

// disassociate frees the elastic addresses of an interface, which is deleted.
func (c *Cloud) disassociate(e *eni) {
	for _, a := range append(slices.Clone(e.singles), e.primary) {
		c.disassociateAddress(a)
	}
}

func (c *Cloud) disassociateAddress(private string) {
	delete(c.public, private)
	for _, a := range c.elastic {
		if a.private == private {
			a.association, a.eni, a.private = "", "", ""
		}
	}
}

// describeAddresses has no pages: that is how EC2 is.
func (c *Cloud) describeAddresses(r request) (any, *Error) {
	type item struct {
		Public      string    `xml:"publicIp"`
		Allocation  string    `xml:"allocationId"`
		Domain      string    `xml:"domain"`
		Association string    `xml:"associationId,omitempty"`
		Interface   string    `xml:"networkInterfaceId,omitempty"`
		Private     string    `xml:"privateIpAddress,omitempty"`
		Tags        []tagItem `xml:"tagSet>item"`
	}
	for _, name := range []string{"MaxResults", "NextToken"} {
		if r.values.Has(name) {
			return nil, &Error{Code: "UnknownParameter", Message: fmt.Sprintf("The parameter %s is not recognized", name)}
		}
	}
	list, _, err := paged(r, c.elastic, 1000, func(a *elasticAddress) (fields, item) {
		f := fields{"allocation-id": {a.allocation}, "public-ip": {a.public}, "domain": {"vpc"}, "association-id": {a.association}, "network-interface-id": {a.eni}}
		return f.withTags(a.tags), item{a.public, a.allocation, "vpc", a.association, a.eni, a.private, tagItems(a.tags)}
	})
	slices.Reverse(list) // there is no order to rely on
	return struct {
		RequestID string `xml:"requestId"`
		Items     []item `xml:"addressesSet>item"`
	}{done.RequestID, list}, err
}

func (c *Cloud) associateAddress(r request) (any, *Error) {
	a, e := c.elastic[r.text("AllocationId")], c.enis[r.text("NetworkInterfaceId")]
	switch {
	case r.text("AllocationId") == "":
		return nil, &Error{Code: "MissingParameter", Message: "Either 'AllocationId' or 'PublicIp' must be specified"}
	case r.text("NetworkInterfaceId") == "":
		return nil, &Error{Code: "MissingParameter", Message: "Either 'NetworkInterfaceId' or 'InstanceId' must be specified"}
	case a == nil:
		return nil, notFound("AllocationID", r.text("AllocationId"))
	case e == nil:
		return nil, notFound("NetworkInterfaceID", r.text("NetworkInterfaceId"))
	}
	if err := c.associate(a, e, r.text("AllowReassociation") != "false"); err != nil {
		return nil, err
	}
	return struct {
		RequestID   string `xml:"requestId"`
		Return      bool   `xml:"return"`
		Association string `xml:"associationId"`
	}{done.RequestID, true, a.association}, nil
}
