// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import "slices"

// routeTable is a table of a VPC. The main one is that of the subnets without another.
type routeTable struct {
	id, vpc string
	isMain  bool
	subnets []string
}

// mainTable is the id of the main table of a VPC.
func mainTable(vpc string) string { return "rtb-main-" + vpc }

// AddRouteTable adds a route table, which is that of subnets.
func (c *Cloud) AddRouteTable(id, vpc string, subnets ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		t.subnets = slices.DeleteFunc(t.subnets, func(of string) bool { return slices.Contains(subnets, of) })
	}
	c.tables[id] = &routeTable{id: id, vpc: vpc, subnets: subnets}
}

func (c *Cloud) describeRouteTables(r request) (any, *Error) {
	type association struct {
		ID     string `xml:"routeTableAssociationId"`
		Table  string `xml:"routeTableId"`
		Subnet string `xml:"subnetId,omitempty"`
		IsMain bool   `xml:"main"`
		State  string `xml:"associationState>state"`
	}
	type route struct {
		Destination string `xml:"destinationCidrBlock"`
		Gateway     string `xml:"gatewayId"`
		State       string `xml:"state"`
	}
	type item struct {
		ID           string        `xml:"routeTableId"`
		VPC          string        `xml:"vpcId"`
		Routes       []route       `xml:"routeSet>item"`
		Associations []association `xml:"associationSet>item"`
	}
	list, next, err := paged(r, c.tables, 100, func(t *routeTable) (fields, item) {
		i := item{ID: t.id, VPC: t.vpc, Routes: []route{{"10.0.0.0/8", "local", "active"}}}
		f := fields{"route-table-id": {t.id}, "vpc-id": {t.vpc}}
		if t.isMain {
			i.Associations = append(i.Associations, association{"rtbassoc-" + t.id, t.id, "", true, "associated"})
			f["association.main"] = []string{"true"}
		}
		for _, subnet := range t.subnets {
			i.Associations = append(i.Associations, association{"rtbassoc-" + subnet, t.id, subnet, false, "associated"})
			f["association.subnet-id"] = append(f["association.subnet-id"], subnet)
		}
		return f, i
	})
	return struct {
		nextToken
		Items []item `xml:"routeTableSet>item"`
	}{withToken(next), list}, err
}
