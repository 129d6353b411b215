// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package armtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	computefake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7/fake"
	networkfake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8/fake"

	"github.com/skep-operator/skep/resources/outside/outsidetest"
)

const (
	managementHost = "management.azure.com"
	metadataHost   = "169.254.169.254"
	loginHost      = "login.microsoftonline.com"
	token          = "a-token"
)

// Operations of Resource Manager, and what the SDK calls them.
const (
	OpScaleSets     = "VirtualMachineScaleSetsClient.NewListPager"
	OpScaleSetNICs  = "InterfacesClient.NewListVirtualMachineScaleSetNetworkInterfacesPager"
	OpMachineNICs   = "InterfacesClient.NewListVirtualMachineScaleSetVMNetworkInterfacesPager"
	OpNICs          = "InterfacesClient.NewListPager"
	OpNetworks      = "VirtualNetworksClient.NewListAllPager"
	OpGetMachine    = "VirtualMachineScaleSetVMsClient.Get"
	OpUpdateMachine = "VirtualMachineScaleSetVMsClient.BeginUpdate"
	OpGetNIC        = "InterfacesClient.Get"
	OpUpdateNIC     = "InterfacesClient.BeginCreateOrUpdate"
	OpSubnet        = "SubnetsClient.Get"
	OpPrefixes      = "PublicIPPrefixesClient.NewListPager"
	OpMachinePublic = "PublicIPAddressesClient.NewListVirtualMachineScaleSetVMPublicIPAddressesPager"
	OpGetPublic     = "PublicIPAddressesClient.Get"
	OpPutPublic     = "PublicIPAddressesClient.BeginCreateOrUpdate"
	OpDeletePublic  = "PublicIPAddressesClient.BeginDelete"
	OpPoll          = "operations"
	OpToken         = "token"
	OpMetadata      = "metadata"
)

var routes = []struct {
	method, operation string
	path              *regexp.Regexp
}{
	{"GET", OpScaleSets, path(`/resourceGroups/[^/]+/providers/microsoft.compute/virtualMachineScaleSets`)},
	{"GET", OpScaleSetNICs, path(`/resourceGroups/[^/]+/providers/microsoft.compute/virtualMachineScaleSets/[^/]+/networkInterfaces`)},
	{"GET", OpMachineNICs, path(`/resourceGroups/[^/]+/providers/microsoft.compute/virtualMachineScaleSets/[^/]+/virtualMachines/[^/]+/networkInterfaces`)},
	{"GET", OpGetMachine, path(`/resourceGroups/[^/]+/providers/microsoft.compute/virtualMachineScaleSets/[^/]+/virtualMachines/[^/]+`)},
	{"PUT", OpUpdateMachine, path(`/resourceGroups/[^/]+/providers/microsoft.compute/virtualMachineScaleSets/[^/]+/virtualMachines/[^/]+`)},
	{"GET", OpNICs, path(`/resourceGroups/[^/]+/providers/microsoft.network/networkInterfaces`)},
	{"GET", OpGetNIC, path(`/resourceGroups/[^/]+/providers/microsoft.network/networkInterfaces/[^/]+`)},
	{"PUT", OpUpdateNIC, path(`/resourceGroups/[^/]+/providers/microsoft.network/networkInterfaces/[^/]+`)},
	{"GET", OpNetworks, path(`/providers/microsoft.network/virtualNetworks`)},
	{"GET", OpSubnet, path(`/resourceGroups/[^/]+/providers/microsoft.network/virtualNetworks/[^/]+/subnets/[^/]+`)},
	{"GET", OpPrefixes, path(`/resourceGroups/[^/]+/providers/microsoft.network/publicIPPrefixes`)},
	{"GET", OpMachinePublic, path(`/resourceGroups/[^/]+/providers/microsoft.compute/virtualMachineScaleSets/[^/]+/virtualMachines/[^/]+/networkInterfaces/[^/]+/ipconfigurations/[^/]+/publicipaddresses`)},
	{"GET", OpGetPublic, path(`/resourceGroups/[^/]+/providers/microsoft.network/publicIPAddresses/[^/]+`)},
	{"PUT", OpPutPublic, path(`/resourceGroups/[^/]+/providers/microsoft.network/publicIPAddresses/[^/]+`)},
	{"DELETE", OpDeletePublic, path(`/resourceGroups/[^/]+/providers/microsoft.network/publicIPAddresses/[^/]+`)},
	{"GET", OpPoll, path(`/providers/microsoft.compute/locations/westeurope/operations/[^/]+`)},
}

func path(below string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^/subscriptions/` + Subscription + below + `$`)
}

// Hosts are those that Handler serves by TLS.
var Hosts = []string{managementHost, loginHost}

// Handler serves Azure's hosts, which it tells apart by the Host of requests.
func (c *Cloud) Handler() http.Handler {
	compute, network := c.factories()
	return &server{c, compute, network}
}

// Network starts a server, and returns what Azure's hosts are reached through: all requests go to the server. stop ends it.
func (c *Cloud) Network() (network http.RoundTripper, stop func()) {
	return outsidetest.Front(c.Handler())
}

type server struct {
	cloud   *Cloud
	compute *computefake.ServerFactoryTransport
	network *networkfake.ServerFactoryTransport
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Host {
	case metadataHost:
		s.metadata(w, r)
	case loginHost:
		s.login(w, r)
	case managementHost:
		s.manage(w, r)
	default:
		answer(w, http.StatusBadGateway, map[string]any{"error": "no such host: " + r.Host})
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// refuse answers as Resource Manager does. Its messages have ids and times.
func refuse(w http.ResponseWriter, status int, code string) {
	answer(w, status, map[string]any{"error": map[string]any{"code": code, "message": code + " (correlation " + strconv.FormatInt(time.Now().UnixNano(), 36) + ")"}})
}

func (s *server) metadata(w http.ResponseWriter, r *http.Request) {
	c := s.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[OpMetadata]++
	switch value := map[string]string{"azEnvironment": "AzurePublicCloud", "subscriptionId": Subscription, "resourceGroupName": Group}[lastOf(r.URL.Path)]; {
	case c.away:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Header.Get("Metadata") != "true":
		w.WriteHeader(http.StatusBadRequest)
	case r.URL.Path == "/metadata/identity/oauth2/token":
		s.issue(w)
	case value == "":
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = io.WriteString(w, value)
	}
}

func lastOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// issue answers with a token.
func (s *server) issue(w http.ResponseWriter) {
	s.cloud.calls[OpToken]++
	if s.cloud.noTokens {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_client", "error_description": "AADSTS7000222: the provided client secret keys are expired"})
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": 3600, "ext_expires_in": 3600,
		"expires_on": strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10), "resource": "https://management.azure.com/",
	})
}

// login is the token service, with what clients ask it first.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	base := "https://" + loginHost + "/tenant"
	switch {
	case strings.HasSuffix(r.URL.Path, "/oauth2/v2.0/token"):
		s.issue(w)
	case strings.HasSuffix(r.URL.Path, "/discovery/instance"):
		answer(w, http.StatusOK, map[string]any{"tenant_discovery_endpoint": base + "/v2.0/.well-known/openid-configuration", "api-version": "1.1", "metadata": []any{
			map[string]any{"preferred_network": loginHost, "preferred_cache": loginHost, "aliases": []string{loginHost}},
		}})
	case strings.HasSuffix(r.URL.Path, "/openid-configuration"):
		answer(w, http.StatusOK, map[string]any{"token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize", "issuer": base + "/v2.0"})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// manage is Resource Manager.
func (s *server) manage(w http.ResponseWriter, r *http.Request) {
	c := s.cloud
	operation := ""
	for _, of := range routes {
		if of.method == r.Method && of.path.MatchString(r.URL.Path) {
			operation = of.operation
		}
	}
	if operation == "" {
		refuse(w, http.StatusNotFound, "InvalidResourceType")
		return
	}
	if strings.HasSuffix(operation, "Pager") && c.Latency > 0 {
		select {
		case <-time.After(c.Latency):
		case <-r.Context().Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick()
	if c.noTokens || r.Header.Get("Authorization") != "Bearer "+token {
		refuse(w, http.StatusUnauthorized, "ExpiredAuthenticationToken")
		return
	}
	var fault Fault
	if c.Fault != nil {
		fault = c.Fault(operation)
	}
	if c.Forbidden != nil && c.Forbidden(operation, r.URL.Path) {
		fault = Fault{Status: http.StatusForbidden, Code: "AuthorizationFailed"}
	}
	if fault.Status != 0 {
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		refuse(w, fault.Status, fault.Code)
		return
	}
	c.calls[operation]++
	if operation == OpPoll {
		s.poll(w, lastOf(r.URL.Path))
		return
	}
	s.dispatch(w, r, operation, fault)
}

// dispatch has a fake server of the SDK answer.
func (s *server) dispatch(w http.ResponseWriter, r *http.Request, operation string, fault Fault) {
	c := s.cloud
	skip, _ := strconv.Atoi(r.URL.Query().Get("$skiptoken"))
	c.request = request{url: *r.URL, ifMatch: r.Header.Get("If-Match"), skip: skip, fail: fault.Fail}
	// Azure carries out what it was asked for, whether the client waits or not; the fake servers panic if the context ends in between.
	req := r.Clone(context.WithValue(context.WithoutCancel(r.Context()), runtime.CtxAPINameKey{}, operation))
	req.RequestURI = ""
	req.URL.Scheme, req.URL.Host = "https", managementHost
	req.URL.Path, req.URL.RawPath = spelled(req.URL.Path, operation), ""
	var do func(*http.Request) (*http.Response, error) = s.network.Do
	if strings.HasPrefix(operation, "VirtualMachine") {
		do = s.compute.Do
	}
	resp, err := do(req)
	if fault.Lose {
		cut(w)
		return
	}
	if c.request.notFound {
		s.compute, s.network = c.factories() // they keep a list that has no page
		refuse(w, http.StatusNotFound, "NotFound")
		return
	}
	if err != nil {
		if of := new(azcore.ResponseError); errors.As(err, &of) {
			refuse(w, of.StatusCode, of.ErrorCode)
			return
		}
		answer(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "BadRequest", "message": err.Error()}})
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if id := c.request.operation; id != "" {
		// Azure answers at once, and says where the progress of the operation is.
		w.Header().Set("Azure-AsyncOperation", fmt.Sprintf("https://%s/subscriptions/%s/providers/Microsoft.Compute/locations/westeurope/operations/%s?api-version=2025-04-01", managementHost, Subscription, id))
		w.Header().Set("Retry-After-Ms", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body)
}

var computeProvider = regexp.MustCompile(`(?i)/providers/microsoft\.compute/`)

// spelled is a path as the SDK spells it: its fake servers tell paths apart by case, and Azure does not.
func spelled(path, operation string) string {
	provider := "Microsoft.Compute"
	if operation == OpScaleSetNICs || operation == OpMachineNICs {
		provider = "microsoft.Compute"
	}
	return computeProvider.ReplaceAllLiteralString(path, "/providers/"+provider+"/")
}

// cut ends the connection without an answer.
func cut(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// poll is the state of an operation.
func (s *server) poll(w http.ResponseWriter, id string) {
	o := s.cloud.running[id]
	w.Header().Set("Retry-After-Ms", "1")
	switch {
	case o == nil:
		refuse(w, http.StatusNotFound, "OperationNotFound")
	case !o.done:
		answer(w, http.StatusOK, map[string]any{"status": "InProgress"})
	case o.failed != "":
		answer(w, http.StatusOK, map[string]any{"status": "Failed", "error": map[string]any{"code": o.failed, "message": "an internal error occurred"}})
	default:
		answer(w, http.StatusOK, map[string]any{"status": "Succeeded"})
	}
}
